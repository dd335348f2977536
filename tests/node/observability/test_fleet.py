"""Many nodes in one table: over real HTTP on loopback, from pages that are served and from servers that are hostile."""

import json
from functools import partial
from urllib.parse import urlsplit

import pytest
import trio
from click.testing import CliRunner

from sapo_node.cli.main import cli
from sapo_node.observability import fleet
from sapo_node.observability.dashboard import Dashboard
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.observability.fleet import MAX_REPLY_BYTES, Summary, ask_all
from sapo_node.observability.history import History
from sapo_protocol import LocalError, load_manifest

SUMMARY = {
    "peer_id": "12D3KooWabcdefgh",
    "swarm": "starter",
    "doing": "train",
    "rounds": 7,
    "idle": 1.0,
    "reward": 0.25,
    "held_out": 0.5,
    "connected": 2,
    "external": 0.4,
    "notice": "",
}


@pytest.fixture
def page(database, nursery, tmp_path):
    """Serves the page of a node at a place, and gives its address."""

    async def at(host="127.0.0.1", parts=()):
        facts = Facts(database, parts)
        dashboard = Dashboard(facts, database, (host, 0), load_manifest("starter"), tmp_path / "token")
        await nursery.start(dashboard.run)
        return dashboard.address

    return at


@pytest.fixture
def server(nursery):
    """A server that answers each request with the same bytes, and gives its address."""

    async def answering(status, body):
        async def handle(stream):
            await stream.receive_some(65_536)
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            with trio.move_on_after(5):
                await stream.send_all(head.encode() + body)
            await stream.aclose()

        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        return f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"

    return answering


async def only(address):
    [answer] = (await ask_all([address])).values()
    return answer


async def test_a_node_answers_beside_hundreds_that_are_silent(server, nursery, monkeypatch):
    monkeypatch.setattr(fleet, "SECONDS", 2.0)
    monkeypatch.setattr(fleet, "AT_ONCE", 150)

    async def say_nothing(_):
        await trio.sleep_forever()

    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, say_nothing, [listener])
    silent = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
    answering = await server("200 OK", json.dumps(SUMMARY).encode())
    asked = await ask_all([*(f"{silent}?token={number}" for number in range(200)), answering])
    assert asked.pop(answering) == Summary(**SUMMARY)
    assert set(asked.values()) == {"no answer within 2 s"}


async def test_a_node_is_told_in_one_line(page, database):
    History(database).describe_session(
        {
            "peer_id": "12D3",
            "swarm": "starter",
            "connected": ["a", "b"],
            "notices": [{"at": 1.0, "level": "info", "text": "n"}],
        }
    )
    answer = await only(await page())
    assert answer == Summary("12D3", "starter", "between rounds", 0, None, None, None, 2, None, "n")


async def test_a_node_that_starts_says_what_it_waits_for(page):
    assert (await only(await page(parts=["model"]))).doing == "starting: model"


async def test_beyond_loopback_the_token_of_the_address_is_needed(page):
    address = await page("0.0.0.0")
    assert isinstance(await only(address), Summary)
    assert "token" in await only(address.partition("?")[0])
    assert "token" in await only(address[:-1])


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        ("200 OK", b"hello", "not that of a node"),
        ("200 OK", b"[" * 5_000, "not that of a node"),
        ("200 OK", b"[]", "not that of a node"),
        ("200 OK", b"{}", "peer_id"),
        ("200 OK", json.dumps({**SUMMARY, "rounds": "7"}).encode(), "rounds"),
        ("200 OK", b"x" * (MAX_REPLY_BYTES + 1), "longer than"),
        ("302 Found", b"", "status 302"),
        ("404 Not Found", b"", "status 404"),
        ("nonsense", b"", "no answer"),
    ],
)
async def test_a_server_that_is_no_node_is_told_and_ends_nothing(server, status, body, told):
    assert told in await only(await server(status, body))


async def test_what_a_later_version_adds_is_passed_over(server):
    answer = await only(await server("200 OK", json.dumps({**SUMMARY, "more": 1}).encode()))
    assert answer == Summary(**SUMMARY)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/", "http://127.0.0.1:99999/", "https://127.0.0.1:9/"])
async def test_an_address_where_nothing_listens_is_told(address):
    assert "no answer" in await only(address)


@pytest.mark.parametrize("address", ["", "127.0.0.1:8080", "ftp://a/", "http://", "http://[::1"])
async def test_what_is_no_address_of_a_page_is_refused(address):
    with pytest.raises(LocalError, match="address of a page") as refused:
        await ask_all(["http://127.0.0.1:9/", f"{address}?token=secret"])
    assert repr(address) in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_the_table_has_each_node_and_no_markup_or_control_of_theirs(server):
    hostile = {**SUMMARY, "doing": "[red]\x1b[31mx", "peer_id": "[bold]abcdefgh"}
    good, bad = await server("200 OK", json.dumps(hostile).encode()), "http://127.0.0.1:9/"
    run = partial(CliRunner().invoke, cli, ["fleet", good, bad], env={"COLUMNS": "160"})
    done = await trio.to_thread.run_sync(run)
    assert done.exit_code == 1
    assert "[red]\\x1b[31mx" in done.output
    assert "127.0.0.1:9: no answer" in done.output


async def test_the_address_of_a_page_is_whole_on_a_narrow_terminal(server):
    address = await server("200 OK", json.dumps({**SUMMARY, "doing": "verifies and relays since a while"}).encode())
    run = partial(CliRunner().invoke, cli, ["fleet", address], env={"COLUMNS": "60"})
    shown = (await trio.to_thread.run_sync(run)).output
    assert urlsplit(address).netloc in shown
    assert "verifies and relays since a while" in shown


async def test_json_has_a_line_for_each_node_and_no_token(page):
    address = await page("0.0.0.0")
    done = await trio.to_thread.run_sync(partial(CliRunner().invoke, cli, ["fleet", "--json", address]))
    assert done.exit_code == 0
    assert json.loads(done.output)["doing"] == "between rounds"
    assert address.partition("token=")[2] not in done.output


async def test_two_addresses_of_one_host_have_a_line_each(page):
    address = await page("0.0.0.0")
    addresses = [address.partition("?")[0], address]
    done = await trio.to_thread.run_sync(partial(CliRunner().invoke, cli, ["fleet", "--json", *addresses]))
    assert done.exit_code == 1
    assert [("error" in json.loads(line)) for line in done.output.splitlines()] == [True, False]
