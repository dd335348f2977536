"""The page of a node: over real HTTP on loopback, and in a real browser where there is one."""

import stat
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
import trio

from books import book_of
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import NotDrawn, Outcome, State, Unusable, VerifiedGroup
from sapo_node.groups.stats import Interval
from sapo_node.observability.dashboard import Dashboard, parse_place
from sapo_node.observability.dashboard.facts import MOST_GROUPS, SHOWN_GROUPS, Facts
from sapo_node.observability.dashboard.server import kept_token
from sapo_node.observability.history import History
from sapo_node.observability.overview import overview
from sapo_node.training.health import Health
from sapo_node.training.round import RoundReport
from sapo_node.training.take_back import TakeBacks
from sapo_node.trust.constants import Fact
from sapo_node.trust.ledger import Ledger
from sapo_protocol import Layer, LocalError, load_manifest
from swarm_parts import TRAINING

LOCAL = ("127.0.0.1", 0)
MANIFEST = load_manifest("starter")
REPORT = RoundReport(
    3, 5, 1, 1_800_000_000.0, True, 0.25, 0.25, 2, 4, 1, 1, 0.75, {"generate": 1.0, "train": 2.0}, TRAINING
)
EVIL = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@pytest.fixture
async def page(database, nursery, tmp_path):
    """A page that is served, with what it shows and a client."""
    facts = Facts(database)
    facts.ready("sandbox", lambda: "all layers hold")
    dashboard = Dashboard(facts, database, LOCAL, MANIFEST, tmp_path / "token")
    await nursery.start(dashboard.run)
    async with httpx.AsyncClient(base_url=dashboard.address) as client:
        yield client


def fill(database, text=EVIL):
    """A peer that is known, a group of it and a notice, all of them with the text wherever one can be."""
    Ledger(database).report(f"12D3KooW{text}", Fact.FALSE_CLAIM)
    completions = tuple(Sampled(text, "stop") for _ in range(8))
    group = VerifiedGroup(f"12D3KooW{text}", 10, 0, 0, text, text, completions, Levels((1,) * 4 + (0,) * 4))
    book = book_of(database)
    book.offer(group, text)
    book.pass_over([(group, NotDrawn.ENOUGH)])
    book.refused(text, None, text)
    book.flush()
    notice = {"at": 1.0, "level": "info", "text": text}
    History(database).describe_session(
        {"peer_id": text, "swarm": text, "notices": [notice], "connected": [], "waiting": 0}
    )
    History(database).count({text: 3})
    take_backs = TakeBacks(database)
    take_backs.begin({(1, "id"): "peer"}, restored=0, replayed=1, reason="completions said", phrase=text, at=7.0)
    take_backs.finished(take_backs.newest(), 2.0)


async def test_the_page_and_its_parts_are_served_with_strict_headers(page):
    for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/uplot/uPlot.min.css", "text/css")):
        answer = await page.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "unsafe" not in answer.headers["content-security-policy"]


async def test_the_chart_library_is_the_one_that_was_published(page):
    folder = files("sapo_node.observability.dashboard") / "page" / "uplot"
    sums = [line.split() for line in (folder / "SHA256SUMS").read_text().splitlines() if not line.startswith("#")]
    assert {name for _, name in sums} | {"SHA256SUMS"} == {each.name for each in folder.iterdir()}
    assert all(sha256((folder / name).read_bytes()).hexdigest() == digest for digest, name in sums)
    assert (await page.get("/uplot/uPlot.iife.min.js")).content == (folder / "uPlot.iife.min.js").read_bytes()


async def test_a_damaged_row_is_one_answer_and_ends_nothing(page, database):
    fill(database)
    database.execute("UPDATE groups SET state = 'no such state'")
    answer = await page.get("/api/groups")
    assert (answer.status_code, "damaged" in answer.text) == (503, True)
    assert (await page.get("/")).status_code == 200


async def test_the_state_is_what_status_tells_and_more(page, database):
    fill(database, "harmless")
    state = (await page.get("/api/state")).json()
    assert state["peers"][0]["state"] == "untrusted"
    assert state["health"] == {"sandbox": "all layers hold"}
    told = {"kind": "left out", "unit": "group", "means": "", "change": ""}
    assert state["refused"] == [{"why": "harmless", "count": 3, **told}]


async def test_the_state_says_who_decided_on_a_peer_why_and_what_the_node_gained(page, database):
    fill(database, "harmless")
    state = (await page.get("/api/state")).json()
    told = {name: state["peers"][0][name] for name in ("decided_by", "why", "since", "until")}
    why = "has 0 of the 16 verified groups that healthy takes"
    assert told == {"decided_by": "evidence", "why": why, "since": None, "until": None}
    assert state["exchange"] == {"from_others": None, "teachers": [], "fetchers": 0, "fetched": 0}


async def test_the_state_has_the_tier_of_each_peer_and_the_strangers_share(page, database):
    fill(database, "harmless")
    History(database).record(REPORT)
    state = (await page.get("/api/state")).json()
    assert (state["peers"][0]["tier"], state["strangers_share"]) == ("stranger", 0.75)


async def test_groups_come_with_what_became_of_them_and_why(page, database):
    fill(database, "harmless")
    [group] = (await page.get("/api/groups")).json()["groups"]
    assert (group["state"], group["why"]) == ("verified", NotDrawn.ENOUGH)
    assert group["means"]


async def test_each_filter_of_groups_shows_its_newest_however_many_others_are_newer(page, database):
    fill(database, "harmless")
    book = book_of(database)
    for counter in range(SHOWN_GROUPS + 1):
        book._insert(("peer", 11, counter, 0), "ab", State.LEFT_OUT, why=Unusable.CLAIMED_ZERO_ADVANTAGE)
    newest = (await page.get("/api/groups")).json()["groups"]
    assert {each["state"] for each in newest} == {"left out"}
    [waiting] = (await page.get("/api/groups?state=verified")).json()["groups"]
    assert waiting["peer"] == "12D3KooWharmless"
    assert (await page.get("/api/groups?state=trained")).json()["groups"] == []
    more = (await page.get(f"/api/groups?last={SHOWN_GROUPS + 2}")).json()
    assert (len(more["groups"]), more["counts"]) == (SHOWN_GROUPS + 2, {"left out": SHOWN_GROUPS + 1, "verified": 1})
    assert (await page.get("/api/groups?state=nonsense")).status_code == 404


async def test_the_page_has_a_bounded_number_of_points_of_all_rounds_and_a_range_has_each_round_that_is_kept(
    page, database
):
    history = History(database)
    for step in range(1, 301):
        history.record(replace(REPORT, step=step, reward=step / 1_000, filtered={"length": 1}))
    state = (await page.get("/api/state")).json()
    whole = state["points"]
    assert (whole[0]["first"], whole[-1]["last"], state["rounds"][-1]["step"]) == (1, 300, 300)
    assert len(whole) <= 240
    assert (whole[0]["low"], whole[0]["high"], whole[0]["filtered"]) == (0.001, 0.002, {"length": 2})
    part = (await page.get("/api/curve?first=100&last=150")).json()["points"]
    assert [each["first"] for each in part] == list(range(100, 151))
    assert part[0] == {**part[0], "rounds": 1, "reward": 0.1, "filtered": {"length": 1}}
    database.execute("DELETE FROM rounds WHERE step <= 200")
    part = (await page.get("/api/curve?first=151&last=250")).json()["points"]
    assert (part[0]["first"], part[-1]["last"]) == (151, 250)
    assert {each["rounds"] for each in part} == {1, 2}


@pytest.mark.parametrize(
    ("first", "last", "joined"),
    [(103, 103, (103, 104)), (104, 104, (103, 104)), (104, 105, (103, 106)), (198, 210, (197, 200)), (300, 400, ())],
)
@pytest.mark.slow
def test_a_range_of_old_rounds_has_the_points_that_lie_in_it_in_part(database, first, last, joined):
    history = History(database)
    for step in range(1, 301):
        history.record(replace(REPORT, step=step))
    database.execute("DELETE FROM rounds WHERE step <= 201")
    found = [each for each in history.points_between(first, last) if each.rounds > 1]
    assert ((found[0].first, found[-1].last) if found else ()) == joined


@pytest.mark.parametrize("query", ["first=x&last=2", "first=-1&last=2", "first=1&last=" + "9" * 30])
async def test_a_range_that_is_no_range_is_refused(page, query):
    assert (await page.get(f"/api/curve?{query}")).status_code == 404


def test_trust_is_drawn_from_the_start_of_the_node(database):
    facts = Facts(database)
    for step in range(1, 1_000):
        facts.played(step, overview(database))
    steps = [each["step"] for each in facts.state()["trust"]]
    assert steps[0] == 1
    assert steps[-1] > 990
    assert len(steps) <= 240


async def test_what_offends_is_told_from_what_is_not_needed(page, database):
    History(database).count({Layer.SIGNATURE: 2, Unusable.CLAIMED_ZERO_ADVANTAGE: 5, "length filter": 1})
    refused = (await page.get("/api/state")).json()["refused"]
    assert {each["why"]: each["kind"] for each in refused} == {
        Layer.SIGNATURE: "refused",
        Unusable.CLAIMED_ZERO_ADVANTAGE: "not needed",
        "length filter": "left out",
    }


async def test_steps_that_were_taken_back_are_told_in_one_line_each(page, database):
    fill(database, "hail")
    [told] = (await page.get("/api/state")).json()["taken_back"]
    line = "took back 1 group of 1 peer since round 0: completions said 'hail'; replayed 1 round in 2.0 s"
    assert told == {"at": 7.0, "step": 1, "text": line}


async def test_alarms_about_learning_are_told_in_one_line_each(page, database):
    health = Health(database, lambda: 7.0)
    for step, point in ((50, 0.9), (100, 0.1)):
        health.evaluated(step, Interval(point, point, point))
    [told] = (await page.get("/api/state")).json()["health_alarms"]
    line = "round 100: mean held-out pass@1 fell to 0.500, from 0.900 after round 50"
    assert (told["at"], told["text"][: len(line)]) == (7.0, line)


async def test_the_reason_of_a_group_that_was_taken_back_is_explained(page, database):
    book_of(database)._insert(("peer", 11, 0, 0), "ab", State.LEFT_OUT, why="taken back: completions said 'x'")
    [group] = (await page.get("/api/groups")).json()["groups"]
    assert "restored an earlier checkpoint" in group["means"]


async def test_a_peer_can_be_asked_about(page, database):
    fill(database, "harmless")
    assert "State: untrusted" in (await page.get("/api/peers/12D3KooWharmless")).json()["text"]
    assert (await page.get("/api/peers/nobody")).status_code == 404


async def test_metrics_are_in_the_form_of_prometheus(page, database):
    fill(database, "harmless")
    text = (await page.get("/metrics")).text
    assert 'sapo_left_out_total{reason="harmless"} 3.0' in text
    assert 'sapo_peers{state="untrusted"} 1.0' in text


async def test_the_strangers_share_is_a_metric(page, database):
    History(database).record(REPORT)
    assert "sapo_strangers_share 0.75" in (await page.get("/metrics")).text


async def test_every_metric_is_documented(page, database):
    fill(database, "harmless")
    documented = (Path(__file__).parents[3] / "docs" / "operate" / "metrics.md").read_text()
    names = [line.split()[2] for line in (await page.get("/metrics")).text.splitlines() if line.startswith("# TYPE")]
    assert len(names) >= 8
    assert all(f"`{name}`" in documented for name in names)


async def test_nothing_can_be_written(page):
    for path in ("/", "/api/state", "/metrics"):
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
            reply = await page.request(method, path)
            assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")


async def test_another_name_for_this_host_is_refused(page):
    answer = await page.get("/api/state", headers={"Host": "attacker.example"})
    assert answer.status_code == 421
    assert "peers" not in answer.text


@pytest.mark.parametrize(
    ("site", "path", "status"),
    [
        ("cross-site", "/api/groups?last=500", 403),
        ("cross-site", "/metrics", 403),
        ("same-site", "/api/state", 403),  # another port of this machine
        ("cross-site", "/", 200),  # a link to the page
        ("same-origin", "/api/state", 200),
        ("none", "/api/state", 200),  # typed by the operator
    ],
)
async def test_a_page_of_another_site_gets_no_facts_gathered(page, site, path, status):
    assert (await page.get(path, headers={"Sec-Fetch-Site": site})).status_code == status


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]"])
async def test_the_names_of_loopback_are_not(page, name):
    assert (await page.get("/api/state", headers={"Host": f"{name}:80"})).status_code == 200


async def test_beyond_loopback_nothing_is_shown_without_the_token(database, nursery, tmp_path):
    dashboard = Dashboard(Facts(database), database, ("0.0.0.0", 0), MANIFEST, tmp_path / "token")
    await nursery.start(dashboard.run)
    address, token = dashboard.address.split("/?token=")
    assert dashboard.address_without_token == address + "/"
    async with httpx.AsyncClient(base_url=address) as stranger:
        assert (await stranger.get("/api/state")).status_code == 401
        assert (await stranger.get("/?token=guess")).status_code == 401
        for given, status in ((f"Bearer {token}", 200), (f"bearer {token}", 200), ("bearer guess", 401), (token, 401)):
            assert (await stranger.get("/metrics", headers={"Authorization": given})).status_code == status
    async with httpx.AsyncClient(base_url=address, follow_redirects=True) as friend:
        opened = await friend.get(f"/?token={token}")
        assert "token" not in str(opened.url)
        assert (await friend.get("/api/state")).status_code == 200


@pytest.mark.parametrize("stored", [None, b"", b"short", b"a" * 23, b"\xff" * 22])
def test_the_token_of_the_page_is_kept_in_a_file_for_the_owner_alone(tmp_path, stored):
    file = tmp_path / "token"
    if stored is not None:
        file.write_bytes(stored)
        file.chmod(0o644)
    token = kept_token(file)
    assert kept_token(file) == token
    assert len(token) == 22
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_on_loopback_there_is_no_token(database, tmp_path):
    Dashboard(Facts(database), database, LOCAL, MANIFEST, tmp_path / "token")
    assert not (tmp_path / "token").exists()


async def test_one_answer_has_a_bounded_number_of_groups(page, database):
    for counter in range(MOST_GROUPS + 1):
        book_of(database)._insert(("peer", 11, counter, 0), "ab", State.LEFT_OUT)
    assert len((await page.get("/api/groups?last=100000")).json()["groups"]) == MOST_GROUPS


async def test_the_page_of_a_node_that_starts_says_what_it_waits_for(database, nursery, tmp_path):
    fill(database, "harmless")
    History(database).describe_session({"peer_id": "12D3", "connected": ["of the session before"]})
    facts = Facts(database, ["key", "model", "network"])
    dashboard = Dashboard(facts, database, LOCAL, MANIFEST, tmp_path / "token")
    await nursery.start(dashboard.run)
    facts.ready("key")
    async with httpx.AsyncClient(base_url=dashboard.address) as client:
        state = (await client.get("/api/state")).json()
    assert state["starting"] == {"key": True, "model": False, "network": False}
    assert state["session"] == {"peer_id": "12D3"}


def test_once_all_parts_are_ready_nothing_is_starting(database):
    facts = Facts(database, ["key", "model"])
    facts.ready("model", lambda: "seed on cpu")
    facts.ready("key")
    assert facts.state()["starting"] == {}
    assert facts.state()["health"] == {"model": "seed on cpu"}


def test_health_is_that_of_now_and_not_that_of_the_start(database):
    facts, restarts = Facts(database), [0]
    facts.ready("sandbox", lambda: f"replaced {restarts[0]} times")
    restarts[0] = 3
    assert facts.state()["health"] == {"sandbox": "replaced 3 times"}


def test_a_node_that_plays_no_rounds_is_not_between_rounds(database):
    facts = Facts(database, rests="verifies and relays")
    assert facts.state()["rests"] == "verifies and relays"


async def test_a_port_that_is_taken_says_what_to_give(database, nursery, tmp_path):
    first = Dashboard(Facts(database), database, LOCAL, MANIFEST, tmp_path / "token")
    await nursery.start(first.run)
    port = int(first.address.split(":")[2].rstrip("/"))
    with pytest.raises(LocalError, match="--dashboard"):
        Dashboard(Facts(database), database, ("127.0.0.1", port), MANIFEST, tmp_path / "token")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("off", None),
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("8080", ("127.0.0.1", 8080)),
    ],
)
def test_a_place_is_an_address_and_a_port(text, place):
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", "::1:80", "example.org:80", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x"])
def test_any_other_place_is_refused(text):
    with pytest.raises(LocalError, match="an IP address and a port"):
        parse_place(text)


async def test_what_peers_wrote_is_text_in_a_browser_whatever_it_says(page, database, tab):
    fill(database)
    History(database).record(REPORT)
    group = VerifiedGroup("12D3KooWpeer", 10, 1, 0, "sums", "2+2?", (Sampled(EVIL, "stop"),), Levels((1,)))
    book, spans = book_of(database), (((5, 10),),)
    outcome = Outcome(weight=1, advantages=(1,), masked_spans=spans, tokens=9)
    book.report(3, book.commit(3, group), "", outcome)
    await trio.to_thread.run_sync(tab.open, str(page.base_url))
    await trio.to_thread.run_sync(tab.until, "document.querySelector('#curve .u-over') !== null")
    await trio.to_thread.run_sync(tab.until, "document.querySelector('#groups del') !== null")
    shown = await trio.to_thread.run_sync(tab.evaluate, "document.documentElement.outerHTML")
    assert "<title>sapo-node</title>" in shown
    assert "took back 1 group of 1 peer since round 0" in shown
    assert "u-over" in shown  # the curve is drawn: the policy of the page lets the chart library work
    assert "Strangers may fill 75 % of the external groups." in shown
    assert "has 0 of the 16 verified groups that healthy takes" in shown
    assert "Gossip does not tell who reads." in shown
    assert shown.count("&lt;img src=x onerror=") >= 8 + 4
    assert "<img" not in shown
    assert "&lt;img <del>src=x</del> onerror=" in shown
    assert shown.count("<script") == 2


def test_facts_are_gathered_once_however_many_ask(database):
    facts = Facts(database)
    assert facts.state() is facts.state()
    assert facts.groups(None) == {"counts": {}, "groups": [], "refusals": []}
