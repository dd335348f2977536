"""What the page of a node does in a real browser, when somebody looks at it, presses something or is faster than it."""

from dataclasses import replace
from urllib.parse import quote

import pytest
import trio

from books import book_of
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup, Outcome, VerifiedGroup
from sapo_node.observability.dashboard import Dashboard
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.observability.history import History
from sapo_node.observability.tasks import MAX_QUIET_GROUPS
from sapo_node.sampling.external import saved_pass_rates
from sapo_node.sampling.memory import Memory
from sapo_node.training.round import RoundReport
from sapo_node.trust.constants import PeerState
from sapo_node.trust.decisions import COMMAND, Decision, decide
from sapo_protocol import load_manifest
from swarm_parts import TRAINING

MANIFEST = load_manifest("starter")
REPORT = RoundReport(
    3, 5, 1, 1_800_000_000.0, True, 0.25, 0.25, 2, 4, 1, 1, 0.75, {"generate": 1.0, "train": 2.0}, TRAINING
)
TRAINED, CONNECTED, BANNED = ([f"12D3KooW{kind}{number:03}" for number in range(60)] for kind in "tcb")
ADVICE = "document.getElementById('task-advice')"
ROWS = "document.querySelectorAll('#peers tbody tr').length > 1"
LATE = """
const real = window.fetch, held = [];
const later = (path) => new Promise((answer) => held.push(() => answer(real(path))));
window.fetch = (path) => (path.includes(PART) ? later(path) : real(path));
window.release = async () => {
  for (const each of held.splice(0)) each();
  await new Promise((done) => setTimeout(done, 500));
};
"""
"""Holds the answers to requests of which PART is a part, until `release` is called."""


@pytest.fixture
def page(database, nursery, tmp_path):
    """Serves the page at a place, and gives its address."""

    async def served(host="127.0.0.1"):
        dashboard = Dashboard(Facts(database), database, (host, 0), MANIFEST, tmp_path / "token")
        await nursery.start(dashboard.run)
        return dashboard.address

    return served


async def inside(function, *arguments):
    return await trio.to_thread.run_sync(function, *arguments)


def know(database, trained=(), connected=(), banned=()):
    for number, peer in enumerate(trained):
        database.execute("INSERT INTO trained VALUES (?, 1, ?, 1, 1.0)", peer, 1_000 - number)
    for peer in banned:
        decide(database, Decision(peer, PeerState.BANNED, COMMAND))
    History(database).describe_session({"peer_id": "12D3KooWself", "connected": list(connected)})


async def test_every_connected_peer_and_banned_ones_are_in_the_table_beside_many_that_were_trained_on(
    page, database, tab
):
    know(database, TRAINED, CONNECTED, BANNED)
    await inside(tab.open, await page())
    await inside(tab.until, ROWS)
    shown = await inside(tab.evaluate, "document.querySelector('#peers tbody').textContent")
    assert [sum(peer[-8:] in shown for peer in kind) for kind in (TRAINED, CONNECTED, BANNED)] == [40, 60, 10]
    told = await inside(tab.evaluate, "document.querySelector('#peers-count').textContent")
    assert told.startswith("110 of 180 peers")


async def test_a_table_that_is_wider_than_its_card_can_be_scrolled_with_the_keyboard(page, database, tab):
    know(database, TRAINED)
    await inside(tab.width, 800)
    await inside(tab.open, await page())
    await inside(tab.until, ROWS)
    assert await inside(tab.evaluate, "document.documentElement.scrollWidth <= innerWidth")
    box = "document.querySelector('#peers').parentElement"
    assert await inside(tab.evaluate, f"[{box}.scrollWidth > {box}.clientWidth, {box}.tabIndex]") == [True, 0]
    await inside(tab.width, 400)
    assert await inside(tab.until, f"{box}.tabIndex") == -1


async def test_a_peer_that_the_node_knows_no_longer_is_told_of_when_it_is_pressed(page, database, tab):
    know(database, TRAINED[:1])
    await inside(tab.open, await page())
    await inside(tab.until, ROWS)
    await inside(tab.evaluate, LATE.replace("PART", "'api/state'") + "0")
    database.execute("DELETE FROM trained")
    await inside(tab.evaluate, "document.querySelector('#peers button').click()")
    told = await inside(tab.until, "document.getElementById('about-peer').textContent")
    assert f"no peer begins or ends with '{TRAINED[0]}'" in told


async def test_the_page_names_a_task_that_teaches_nothing(page, database, tab):
    rates = saved_pass_rates(database)
    levels = Levels((0, 0))
    for _ in range(MAX_QUIET_GROUPS):
        rates.observe([LocalGroup("products", "?", b"", (), levels, local_advantages(levels))])
    Memory(database, {"pass rates": rates}).save(1)
    know(database)
    await inside(tab.open, await page())
    told = await inside(tab.until, f"{ADVICE}?.checkVisibility() && {ADVICE}.innerText")
    assert "products teaches this model nothing, because it is too hard" in told


@pytest.mark.parametrize(("fetched", "by"), [({"a": 4}, "4, by 1 peer."), ({"a": 3, "b": 1}, "4, by 2 peers.")])
async def test_the_page_says_how_many_peers_fetched(page, database, tab, fetched, by):
    know(database)
    History(database).fetched(fetched, at=1.0)
    await inside(tab.open, await page())
    assert by in await inside(tab.until, "document.getElementById('exchange')?.textContent")


async def test_the_answer_for_a_range_that_comes_late_does_not_take_the_place_of_all_rounds(page, database, tab):
    for step in range(1, 121):
        History(database).record(replace(REPORT, step=step))
    know(database)
    await inside(tab.open, await page())
    await inside(tab.until, "document.querySelector('#curve .u-over') !== null")
    await inside(tab.evaluate, LATE.replace("PART", "'api/curve'") + "0")
    for last in (100, 0):
        await inside(tab.evaluate, f"document.querySelector('#ranges [data-last=\"{last}\"]').click()")
    await inside(tab.evaluate, "release()")
    assert await inside(tab.evaluate, "document.getElementById('range').textContent") == ""


async def test_a_range_that_the_node_does_not_give_is_told_of(page, database, tab):
    History(database).record(REPORT)
    await inside(tab.open, await page())
    await inside(tab.until, "document.querySelector('#curve .u-over') !== null")
    await inside(tab.evaluate, "window.fetch = () => Promise.reject(new TypeError('gone'))")
    await inside(tab.evaluate, "document.querySelector('#ranges [data-last=\"100\"]').click()")
    told = await inside(tab.until, "document.getElementById('range').textContent")
    assert told == "Rounds 0 to 1 cannot be shown: The node does not answer."


async def test_a_range_without_rounds_is_not_told_as_a_node_without_rounds(page, database, tab):
    for step in (1, 2):
        History(database).record(replace(REPORT, step=100 * step))
    await inside(tab.open, await page())
    await inside(tab.until, "document.querySelector('#curve .u-over') !== null")
    database.execute("DELETE FROM rounds")
    database.execute("DELETE FROM curve WHERE first = 200")
    await inside(tab.evaluate, "document.querySelector('#ranges [data-last=\"100\"]').click()")
    told = await inside(tab.until, "document.querySelector('#phases .empty')?.textContent")
    assert told == "The node knows no round of this range."


async def test_the_address_with_its_token_opens_the_page_from_a_link_on_another_site(page, database, tab):
    address = await page("0.0.0.0")
    await inside(tab.open, f"data:text/html,<a href='{quote(address)}'>my node</a>")
    await inside(tab.until, "document.links.length")
    await inside(tab.evaluate, "document.links[0].click()")
    await inside(tab.until, "location.protocol === 'http:' && document.readyState === 'complete'")
    assert (
        await inside(tab.until, "document.body.textContent.includes('Is it learning?') && location.href")
        == (address.partition("?")[0])
    )
    entries = (await inside(tab.call, "Page.getNavigationHistory"))["entries"]
    assert not [each["url"] for each in entries if "?token=" in each["url"] and "data:" not in each["url"]]


def trained_on(database, text, outcome):
    book = book_of(database)
    group = VerifiedGroup("12D3KooWpeer", 3, 0, 0, "sums", "2+2?", (Sampled(text, "stop"),), Levels((1,)))
    book.report(7, book.commit(7, group), "", outcome)


async def test_a_group_says_how_many_tokens_the_filters_masked(page, database, tab):
    trained_on(database, "so", Outcome(weight=1, advantages=(1,), tokens=40, masked=12))
    await inside(tab.open, await page())
    told = await inside(tab.until, "document.querySelector('#groups details')?.textContent")
    assert "filters masked 12 tokens of its correct completions" in told


async def test_a_character_that_turns_a_line_around_is_shown_as_its_escape_and_moves_no_mark_of_a_filter(
    page, database, tab
):
    trained_on(database, "a\u202eb\u200b\nc", Outcome(weight=1, advantages=(1,), masked_spans=(((2, 3),),)))
    await inside(tab.open, await page())
    await inside(tab.until, "document.querySelector('#groups pre') !== null")
    assert (
        await inside(tab.evaluate, "document.querySelectorAll('#groups pre')[1].textContent")
        == "a\\u{202e}b\\u{200b}\nc"
    )
    assert await inside(tab.evaluate, "document.querySelector('#groups del').textContent") == "b"


WHOLE_ID = "12D3KooW" + "a1B2" * 11


@pytest.mark.parametrize("width", [320, 390, 1280])
async def test_no_width_of_the_window_breaks_an_id_or_needs_scrolling_sideways(page, database, tab, width):
    address = f"/ip4/192.168.100.100/tcp/46001/p2p/{WHOLE_ID}"
    notice = {"at": 1.0, "level": "info", "text": f"connected to {WHOLE_ID}"}
    session = {"peer_id": WHOLE_ID, "connected": [WHOLE_ID], "addresses": [address], "notices": [notice]}
    History(database).describe_session(session)
    await inside(tab.width, width)
    await inside(tab.open, await page())
    await inside(tab.until, "document.querySelector('#notices button') !== null")
    assert await inside(tab.evaluate, "document.documentElement.scrollWidth <= innerWidth")
    assert await inside(tab.evaluate, "document.getElementById('peer-id').getClientRects().length") == 1
    shown = await inside(
        tab.evaluate,
        "[...document.querySelectorAll('#peers button, #notices button')]"
        ".map((each) => [each.textContent, each.title, each.getClientRects().length])",
    )
    assert shown == 2 * [[f"…{WHOLE_ID[-8:]}", WHOLE_ID, 1]]


async def test_the_first_line_says_how_the_node_is_and_what_needs_a_person_comes_first(page, database, tab):
    notices = [{"at": 1.0, "level": level, "text": level} for level in ("attention", "info")]
    standing = {"server": "it does not answer"}
    History(database).describe_session({"connected": [], "standing": standing, "notices": notices})
    await inside(tab.open, await page())
    told = await inside(tab.until, "document.getElementById('condition')?.textContent.trim()")
    assert told.startswith("attention: the generation server fails, and the node samples by itself: it does not answer")
    assert await inside(tab.evaluate, "document.getElementById('condition').className") == "attention"
    levels = await inside(tab.evaluate, "[...document.querySelectorAll('#notices li')].map((each) => each.className)")
    assert levels == ["attention", "info"]


async def test_counts_on_the_page_name_what_they_count(page, database, tab):
    History(database).record(replace(REPORT, filtered={"length": 65}))
    History(database).count({"length filter": 6, "signature": 1})
    await inside(tab.open, await page())
    refused = await inside(tab.until, "document.getElementById('refused')?.textContent")
    assert "left out, length filter: 6 groups" in refused
    assert "refused, signature: 1 message" in refused
    assert "length: 65 completions" in await inside(tab.evaluate, "document.getElementById('timeline').ariaLabel")


async def test_a_completion_shows_a_tick_if_it_is_correct_and_its_level_if_it_earns_a_part(page, database, tab):
    group = VerifiedGroup(
        *("12D3KooWpeer", 3, 0, 0, "sums", "2+2?"),
        tuple(Sampled(text, "stop") for text in ("right", "part", "wrong")),
        Levels((4, 3, 0), 4),
    )
    book_of(database).offer(group)
    await inside(tab.open, await page())
    await inside(tab.until, "document.querySelectorAll('#groups .answer').length === 3")
    marks = "[...document.querySelectorAll('#groups .answer > span')].map((each) => each.textContent).join(' ')"
    assert await inside(tab.evaluate, marks) == "✓ 3/4 ✗"
