"""Answers from a real HTTP server on loopback, which speaks chat completions well or badly."""

import socket
import threading
import time
from functools import partial

import pytest
import trio

from chat_server import ChatServer, choice, mostly_right, reply
from sapo_node.contributors import endpoint as module
from sapo_node.contributors.endpoint import endpoint
from sapo_node.groups.prompt import SYSTEM, Prompt
from sapo_node.training.rollout import AnswerFailed
from sapo_protocol import LocalError

QUESTION = "Solve the following multiplication: 12 * 34."


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A server that is busy is asked again at once, and no proxy of the machine stands between."""
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.0, 0.0))
    monkeypatch.setenv("NO_PROXY", "*")


async def ask(url, *prompts, key=None, completions=4, max_bytes=1000):
    """The groups that an endpoint gives for the questions."""
    async with endpoint(url, model="tiny", key=key, temperature=0.7, max_bytes=max_bytes) as answerer:
        return await answerer.generate(
            [Prompt(each) for each in prompts or [QUESTION]], completions=completions, max_tokens=50, seed=1
        )


async def failure(url, **options):
    """The line with which it fails."""
    with pytest.raises(AnswerFailed) as caught:
        await ask(url, **options)
    (line,) = str(caught.value).splitlines()
    return line


async def failure_of(status, headers=None, body=b""):
    with ChatServer(lambda _: (status, headers or {}, body)) as server:
        return await failure(server.url), len(server.requests)


async def test_all_completions_of_a_question_come_by_one_request_where_the_server_gives_several():
    with ChatServer() as server:
        ((*group,),) = await ask(server.url)
    assert [each.text for each in group] == ["It is <answer>unknown</answer>", "12*34=408. So <answer>408</answer>"] * 2
    assert {each.finish for each in group} == {"stop"}
    assert {each.tokens for each in group} == {None}
    ((path, request),) = server.requests
    assert path == "/v1/chat/completions"
    assert request == {
        "model": "tiny",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}],
        "max_tokens": 50,
        "temperature": 0.7,
        "n": 4,
    }


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("/", "/chat/completions"),
        ("?api-version=2024-10-21&x=a/", "/chat/completions?api-version=2024-10-21&x=a/"),
        ("/a%2Fb?x=%2F", "/a%2Fb/chat/completions?x=%2F"),
        ("/chat/completions", "/chat/completions"),
        ("/chat/completions/?x=1", "/chat/completions?x=1"),
    ],
)
async def test_the_address_of_an_endpoint_may_have_a_query_and_the_whole_path(given, asked):
    with ChatServer() as server:
        await ask(f"{server.url}{given}")
    assert [path for path, _ in server.requests] == [f"/v1{asked}"]


async def test_an_address_with_a_fragment_is_refused():
    with pytest.raises(LocalError, match="--endpoint has the fragment #frag, which no server gets; leave it out"):
        await open_endpoint("http://127.0.0.1:1/v1#frag", None)


async def test_every_question_gets_its_own_answers_in_order():
    with ChatServer(lambda request: reply(*[choice(request["messages"][1]["content"])] * 4)) as server:
        groups = await ask(server.url, "one", "two", "three")
    assert [{each.text for each in group} for group in groups] == [{"one"}, {"two"}, {"three"}]


async def test_a_server_that_ignores_n_is_asked_for_each_completion_and_not_for_several_again():
    with ChatServer(lambda _: reply(choice("a"))) as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=1, max_bytes=99) as answerer:
            for _ in range(2):
                (group,) = await answerer.generate([Prompt(QUESTION)], completions=4, max_tokens=9, seed=1)
                assert len(group) == 4
    assert [request.get("n", 1) for _, request in server.requests] == [4] + [1] * 3 + [1] * 4


async def test_a_server_that_refuses_n_is_asked_for_each_completion():
    def only_one(request):
        return reply(choice("a")) if "n" not in request else (400, {}, b'{"error": "n must be 1"}')

    with ChatServer(only_one) as server:
        (group,) = await ask(server.url)
    assert len(group) == 4


async def test_more_choices_than_asked_for_are_left():
    with ChatServer(lambda _: reply(*[choice("a")] * 9)) as server:
        (group,) = await ask(server.url)
    assert len(group) == 4


async def test_only_so_many_requests_are_under_way_at_once(monkeypatch):
    def slow(_):
        time.sleep(0.2)
        return reply(choice("a"))

    with ChatServer(slow) as server:
        await ask(server.url, *["?"] * 3, completions=8)
    assert 1 < server.most_together <= module.MAX_CONCURRENT
    assert len(server.requests) == 24


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), ("content_filter", "length")])
async def test_a_finish_reason_other_than_stop_is_a_limit(reason, finish):
    with ChatServer(lambda _: reply(*[choice("a", reason)] * 4)) as server:
        (group,) = await ask(server.url)
    assert {each.finish for each in group} == {finish}


async def test_a_text_over_the_swarms_limit_is_cut_at_a_character_and_marked():
    with ChatServer(lambda _: reply(*[choice("aüü")] * 4)) as server:
        ((cut, *_),) = await ask(server.url, max_bytes=4)
        ((whole, *_),) = await ask(server.url, max_bytes=5)
    assert (cut.text, cut.finish) == ("aü", "length")
    assert (whole.text, whole.finish) == ("aüü", "stop")


@pytest.mark.parametrize("text", ["<|im_end|> and </s>", "\x00", "a\u2028b"])
async def test_markers_and_odd_characters_stay_plain_text(text):
    with ChatServer(lambda _: reply(*[choice(text)] * 4)) as server:
        (group,) = await ask(server.url)
    assert group[0].text == text


async def test_half_a_character_becomes_text_that_can_be_signed():
    with ChatServer(lambda _: reply(*[choice("a\ud800b")] * 4)) as server:
        (group,) = await ask(server.url)
    assert group[0].text == "a?b"


async def test_a_choice_without_content_is_an_empty_answer():
    with ChatServer(lambda _: reply(*[choice(None, "tool_calls")] * 4)) as server:
        (group,) = await ask(server.url)
    assert [(each.text, each.finish) for each in group] == [("", "length")] * 4


async def test_the_key_is_sent_and_nothing_without_one():
    with ChatServer() as server:
        await ask(server.url, key="secret")
        await ask(server.url)
    assert [headers.get("Authorization") for headers in server.headers] == ["Bearer secret", None]


async def test_an_endpoint_that_is_down_is_told_by_its_address():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert f"http://127.0.0.1:{port}/v1/chat/completions failed: " in await failure(f"http://127.0.0.1:{port}/v1")


async def open_endpoint(url, key):
    async with endpoint(url, model="tiny", key=key, temperature=0.7, max_bytes=1000):
        pass


@pytest.mark.parametrize(
    "host", ["192.0.2.7:8000", "api.example", "[2001:db8::1]", "127.0.0.1.example", "localhost.example"]
)
async def test_a_key_is_not_sent_unencrypted_to_another_machine(host):
    with pytest.raises(LocalError, match="unencrypted") as caught:
        await open_endpoint(f"http://{host}/v1", "secret")
    assert "secret" not in str(caught.value)


async def test_a_password_in_the_address_is_not_sent_unencrypted_to_another_machine():
    with pytest.raises(LocalError, match="password in the address unencrypted") as caught:
        await open_endpoint("http://me:secret@192.0.2.7/v1", None)
    assert "secret" not in str(caught.value)


async def test_a_password_in_the_address_of_an_endpoint_that_is_down_is_not_shown():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    line = await failure(f"http://me:secret@127.0.0.1:{port}/v1")
    assert f"http://127.0.0.1:{port}/v1/chat/completions failed: " in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://me:secret@api.example/v1", None),
        ("https://api.example/v1", "secret"),
        ("http://127.0.0.1:8000/v1", "secret"),
        ("http://[::1]:8000/v1", "secret"),
        ("http://localhost:8000/v1", "secret"),
        ("http://192.0.2.7:8000/v1", None),
        ("http://192.0.2.7:8000/v1", ""),
    ],
)
async def test_a_key_goes_encrypted_or_stays_here_and_without_one_any_server_is_asked(url, key):
    await open_endpoint(url, key)


async def test_a_key_that_stays_here_goes_through_no_proxy(monkeypatch):
    with ChatServer() as server, ChatServer() as proxy:
        monkeypatch.delenv("NO_PROXY")
        monkeypatch.setenv("HTTP_PROXY", proxy.url.rpartition("/v1")[0])
        await ask(server.url, key="secret")
    assert (len(server.requests), proxy.requests) == (1, [])


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel"])
async def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key):
    with pytest.raises(LocalError, match="SAPO_NODE_API_KEY") as caught:
        await open_endpoint("https://api.example/v1", key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://a/v1", "http://", "http://[::1", "http://a:port/v1", "", "\x1b[2J", "http://xn--/"]
)
async def test_a_url_that_is_no_address_is_refused_at_the_start(url):
    with pytest.raises(LocalError, match="--endpoint is") as caught:
        await open_endpoint(url, None)
    assert str(caught.value).isprintable()


async def test_a_refused_key_names_the_variable_to_set():
    line, requests = await failure_of(401)
    assert "SAPO_NODE_API_KEY" in line
    assert requests == 1


async def test_a_redirect_is_refused_with_its_address():
    with ChatServer() as other:
        line, _ = await failure_of(307, {"Location": other.url})
        assert other.url in line
        assert other.requests == []


async def test_a_redirect_within_the_server_names_an_address_that_endpoint_takes():
    with ChatServer(lambda _: (308, {"Location": "/v2/chat/completions"}, b"")) as server:
        line = await failure(server.url)
    assert f"redirects to {server.url.removesuffix('/v1')}/v2/chat/completions, and" in line


async def test_a_redirect_does_not_show_the_key_in_the_query_of_the_address():
    with ChatServer(lambda _: (308, {"Location": "https://example.org/v1?key=hidden"}, b"")) as server:
        line = await failure(f"{server.url}?key=hidden")
    assert "https://example.org/v1, and" in line
    assert "hidden" not in line


async def test_html_in_place_of_json_says_so():
    line, _ = await failure_of(200, {"Content-Type": "text/html"}, b"<html>\n<h1>Welcome</h1>")
    assert "not JSON, it begins '<html> <h1>" in line


async def test_what_a_server_says_cannot_steer_the_terminal():
    line, _ = await failure_of(400, {}, b"\x1b[2Jgone \xff")
    assert "\x1b" not in line


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b"null", b'{"choices": []}', b'{"choices": {}}', b'{"choices": [{}]}', b"[" * 100_000, b"\xff", b""],
)
async def test_json_that_is_no_chat_completion_is_one_clear_line(body):
    line, requests = await failure_of(200, {}, body)
    assert "endpoint" in line
    assert requests == 1


async def test_an_answer_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "MAX_REPLY_BYTES", 10_000)
    line, _ = await failure_of(200, {}, b" " * 20_000)
    assert "longer than 10000 bytes" in line


async def test_a_server_that_packs_its_answer_unasked_cannot_unpack_a_bomb_here():
    line, _ = await failure_of(200, {"Content-Encoding": "gzip"}, b"\x1f\x8b" + bytes(100))
    assert "not JSON" in line


async def test_a_busy_server_is_asked_again_and_then_answers():
    calls = []

    def busy_twice(request):
        calls.append(request)
        return mostly_right(request) if len(calls) > 2 else (429, {}, b"slow down")

    with ChatServer(busy_twice) as server:
        (group,) = await ask(server.url)
    assert len(group) == 4
    assert len(calls) == 3


async def test_a_server_that_stays_broken_fails_after_three_requests():
    line, requests = await failure_of(503, {}, b"no model loaded")
    assert "503: 'no model loaded'" in line
    assert requests == 3


async def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(module, "RETRY_SECONDS", ())
    done = threading.Event()

    def hang(_):
        done.wait(5)
        return reply()

    with ChatServer(hang) as server:
        assert "did not answer within 0.1 s" in await failure(server.url)
        done.set()


async def test_a_request_that_the_server_refuses_fails_the_round_and_names_what_to_check():
    def sometimes(request):
        return reply(*[choice("a")] * 4) if request["messages"][1]["content"] == "good" else (404, {}, b"")

    with ChatServer(sometimes) as server, pytest.raises(AnswerFailed, match="--model"):
        await ask(server.url, "good", "bad")


@pytest.mark.parametrize("several", [4, 1])
async def test_completions_that_came_before_a_failure_are_not_asked_for_again(several):
    """The server gives so many completions by one request, and fails once in the middle of a round."""
    given, failed = [], []

    def fails_once(request):
        prompt = request["messages"][1]["content"]
        if prompt == "bad" and request.get("n", 1) <= several and not failed:
            failed.append(request)
            return 401, {}, b""
        texts = [prompt] * min(several, request.get("n", 1))
        given.extend(texts)
        return reply(*map(choice, texts))

    prompts = [Prompt("good"), Prompt("bad"), Prompt("good")]
    with ChatServer(fails_once) as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=1, max_bytes=99) as answerer:
            asking = partial(answerer.generate, completions=4, max_tokens=9, seed=1)
            with pytest.raises(AnswerFailed, match="refuses the key"):
                await asking(prompts)
            groups = await asking(prompts)
    assert [[each.text for each in group] for group in groups] == [[each.text] * 4 for each in prompts]
    assert len(given) == 12


async def test_the_next_round_is_asked_for_completions_of_its_own():
    with ChatServer() as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=1, max_bytes=99) as answerer:
            for _ in range(2):
                await answerer.generate([Prompt(QUESTION)], completions=4, max_tokens=9, seed=1)
    assert len(server.requests) == 2


async def test_waiting_for_an_endpoint_can_be_cancelled():
    done = threading.Event()
    with ChatServer(lambda _: (done.wait(5), reply())[1]) as server:
        with trio.move_on_after(0.1) as scope:
            await ask(server.url)
        done.set()
    assert scope.cancelled_caught


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://127.0.0.1", ""])
async def test_what_is_no_http_address_is_refused_at_the_start(url):
    with pytest.raises(LocalError, match="--endpoint"):
        await ask(url)
