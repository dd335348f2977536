"""Answers from a real HTTP server on loopback, which speaks chat completions well or badly."""

import json
import re
import socket
import threading
import time
from functools import partial

import pytest
import trio

from chat_server import ChatServer, choice, mostly_right, reply
from sapo_node.contributors import endpoint as module
from sapo_node.contributors.chat_format import extra_body
from sapo_node.contributors.endpoint import endpoint
from sapo_node.groups.prompt import SYSTEM, Prompt
from sapo_node.training.rollout import AnswerFailed, NoText
from sapo_protocol import LocalError

QUESTION = "Solve the following multiplication: 12 * 34."


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A server that is busy is asked again at once, and no proxy of the machine stands between."""
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.0, 0.0))
    monkeypatch.setenv("NO_PROXY", "*")


async def ask(url, *prompts, key=None, completions=4, max_bytes=1000, extra=None):
    """The groups that an endpoint gives for the questions."""
    async with endpoint(url, model="tiny", key=key, temperature=0.7, max_bytes=max_bytes, extra=extra) as answerer:
        return await answerer.generate(
            [Prompt(each) for each in prompts or [QUESTION]], completions=completions, max_tokens=50, seed=1
        )


async def failure(url, **options):
    """The line with which it fails, whether the node then stops or asks again."""
    with pytest.raises(LocalError) as caught:
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


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop", "stop"), ("eos_token", "stop"), ("length", "length"), ("content_filter", "length"), (None, "length")],
)
async def test_a_finish_reason_other_than_an_end_is_a_limit(reason, finish):
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


def message(content, finish="stop", **more):
    return {"index": 0, "message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}


THINKING = [
    message(None, "length", reasoning_content="So 12 times"),
    {"index": 0, "message": {"role": "assistant", "reasoning": "So"}, "finish_reason": "length"},
    message("", "length"),
    message("\n\n", "length", reasoning="So"),
    message([], "length"),
    message([{"type": "thinking", "thinking": "So"}], "length"),
]
"""Completions of models that spent their tokens on reasoning."""


@pytest.mark.parametrize("empty", THINKING, ids=str)
async def test_a_round_of_empty_completions_names_more_tokens_and_reasoning_off_as_the_cure(empty):
    with ChatServer(lambda _: reply(*[empty] * 4)) as server, pytest.raises(NoText) as caught:
        await ask(server.url, "one", "two")
    assert re.search("all 8 completions .* --max-tokens 50 .*enable_thinking.*reasoning_effort", str(caught.value))
    assert len(server.requests) == 2


@pytest.mark.parametrize("finish", ["tool_calls", "content_filter", None])
async def test_empty_completions_that_no_limit_explains_are_told_by_their_finish_reason(finish):
    with ChatServer(lambda _: reply(*[message(None, finish)] * 4)) as server, pytest.raises(NoText) as caught:
        await ask(server.url)
    assert f"4 have the finish_reason {finish}; check --model" in str(caught.value)


async def test_an_empty_completion_among_others_counts_as_a_completion(caplog):
    with ChatServer(lambda _: reply(choice("a"), *[message(None, "length")] * 3)) as server:
        (group,) = await ask(server.url)
    assert [(each.text, each.finish) for each in group] == [("a", "stop"), *[("", "length")] * 3]
    assert len(server.requests) == 1
    assert "3 of 4 completions are empty" in caplog.text


async def test_completions_that_are_mostly_cut_are_told_with_the_limit(caplog):
    with ChatServer(lambda _: reply(*[choice("So 12", "length")] * 4)) as server:
        await ask(server.url)
    assert caplog.messages == ["4 of 4 completions were cut at --max-tokens 50; give more"]


async def test_a_server_without_a_text_is_asked_for_the_completions_of_so_many_rounds_and_no_more():
    with ChatServer(lambda _: reply(*[message(None, "length")] * 4)) as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=1, max_bytes=99) as answerer:
            for number in range(module.EMPTY_ROUNDS):
                with pytest.raises(NoText):
                    await asking(answerer, f"{number}")
            with pytest.raises(LocalError, match=r"--max-tokens 9 on reasoning.* asked for 32 completions") as caught:
                await asking(answerer, "more")
    assert type(caught.value) is LocalError
    assert sum(request["n"] for _, request in server.requests) == 4 * module.EMPTY_ROUNDS


@pytest.mark.parametrize("body", [b'{"choices": []}', b'{"error": {"message": "Provider returned error"}}'])
async def test_a_server_that_answers_without_completions_is_not_asked_for_ever(body):
    with ChatServer(lambda _: (200, {}, body)) as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=1, max_bytes=99) as answerer:
            for _ in range(module.EMPTY_ROUNDS):
                with pytest.raises(AnswerFailed, match="no completions"):
                    await asking(answerer)
            with pytest.raises(LocalError, match=r"has no completions: .* asked for 32 completions"):
                await asking(answerer)
    assert len(server.requests) == module.EMPTY_ROUNDS


async def test_a_server_whose_rounds_never_come_in_time_is_not_asked_for_ever():
    done = threading.Event()
    with ChatServer(lambda _: (done.wait(5), reply())[1]) as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=1, max_bytes=99) as answerer:
            for number in range(module.EMPTY_ROUNDS):
                with trio.move_on_after(0.1):
                    await asking(answerer, f"{number}")
            with pytest.raises(
                LocalError, match=r"in time; lower --max-tokens or --local; .* asked for 32 completions"
            ):
                await asking(answerer)
        done.set()


async def asking(answerer, *prompts):
    prompts = [Prompt(each) for each in prompts or [QUESTION]]
    return await answerer.generate(prompts, completions=4, max_tokens=9, seed=1)


PARTS = [{"type": "thinking", "thinking": "So"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (message(PARTS), "ab"),
        (message(None, reasoning_content="So <answer>2</answer>"), "So <answer>2</answer>"),
        (message("", reasoning="So <answer>2</answer>"), "So <answer>2</answer>"),
        (message("2", reasoning="So"), "2"),
    ],
)
async def test_the_text_of_a_completion_is_found_where_the_server_puts_it(given, text):
    with ChatServer(lambda _: reply(*[given] * 4)) as server:
        (group,) = await ask(server.url)
    assert {(each.text, each.finish) for each in group} == {(text, "stop")}


def refusing(*rules):
    """A server that refuses each request to which a rule applies, and a counter of the requests for completions."""

    def behave(request):
        for applies, status, words in rules:
            if applies(request):
                return status, {}, json.dumps({"error": {"message": words}}).encode()
        return reply(*[choice("a")] * request.get("n", 1))

    return ChatServer(behave)


def has_system(request):
    return any(each["role"] == "system" for each in request["messages"])


SYSTEM_RULE = has_system, 400, "System role not supported"
LIMIT_RULE = (
    lambda request: "max_tokens" in request,
    400,
    "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
)
TEMPERATURE_RULE = lambda request: "temperature" in request, 400, "Unsupported value: 'temperature'"
N_RULE = lambda request: "n" in request, 422, "body.n: Extra inputs are not permitted"
SILENT = [
    (applies, status, "bad request") for applies, status, _ in (SYSTEM_RULE, LIMIT_RULE, TEMPERATURE_RULE, N_RULE)
]


@pytest.mark.parametrize(
    "rules",
    [
        [SYSTEM_RULE],
        [(has_system, 500, "Jinja Exception: System role not supported")],
        [LIMIT_RULE],
        [TEMPERATURE_RULE],
        [N_RULE],
        *[[rule] for rule in SILENT],
        [SYSTEM_RULE, LIMIT_RULE, TEMPERATURE_RULE, N_RULE],
        [LIMIT_RULE, (TEMPERATURE_RULE[0], 400, "request 7f3a: bad"), (has_system, 400, "request 99b1: worse")],
        SILENT,
    ],
    ids=lambda rules: ", ".join(words for _, _, words in rules),
)
async def test_a_server_that_refuses_the_usual_request_is_asked_once_in_each_other_form(rules, caplog):
    with refusing(*rules) as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=0.5, max_bytes=99) as answerer:
            await asking(answerer, "one", "two")
            tried = len(server.requests)
            (first, second) = await asking(answerer, "three", "four")
    assert [each.text for each in (*first, *second)] == ["a"] * 8
    (line,) = caplog.messages
    assert line.startswith(f"the endpoint refused a request ({rules[0][2]}); it answers with ")
    assert tried <= 1 + len(module.Change) + 7
    assert not [each for _, each in server.requests[tried:] for applies, *_ in rules if applies(each)]
    assert all(SYSTEM in json.dumps(each["messages"]) for _, each in server.requests)
    assert all(9 in (each.get("max_tokens"), each.get("max_completion_tokens")) for _, each in server.requests)


@pytest.mark.parametrize("words", ["context length exceeded", "System role not supported", "max_tokens is too large"])
async def test_a_server_that_refuses_every_form_ends_the_node_with_its_own_words_after_some_requests(words):
    with refusing((lambda _: True, 400, words)) as server, pytest.raises(LocalError, match=words) as caught:
        await ask(server.url, "one", "two")
    assert type(caught.value) is LocalError
    assert len(server.requests) <= 3


async def test_a_prompt_that_the_server_refuses_alone_has_empty_completions_and_the_round_goes_on(caplog):
    refused = (lambda request: request["messages"][-1]["content"] == "bad", 400, "flagged by a content filter")
    with refusing(refused) as server:
        good, bad, last = await ask(server.url, "good", "bad", "last")
    assert [each.text for each in (*good, *bad, *last)] == ["a"] * 4 + [""] * 4 + ["a"] * 4
    assert len(server.requests) == 3
    assert "flagged by a content filter" in caplog.text


async def test_more_keys_go_into_each_request():
    with ChatServer() as server:
        await ask(server.url, extra={"chat_template_kwargs": {"enable_thinking": False}})
    assert [request["chat_template_kwargs"] for _, request in server.requests] == [{"enable_thinking": False}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON object"),
        ("[" * 9999, "is no JSON object"),
        ('{"a": NaN}', "is no JSON object .*NaN"),
        ('{"a": "\\ud800"}', "is no JSON object"),
        ("[]", "is no JSON object"),
        ('"text"', "is no JSON object"),
        ('{"messages": []}', "may not have 'messages'"),
        ('{"model": "other"}', "may not have 'model': give --model"),
        ('{"n": 1}', "may not have 'n'"),
        ('{"stream": true}', "may not have 'stream'"),
        ('{"max_tokens": 9}', "may not have 'max_tokens': give --max-tokens"),
        ('{"temperature": 9}', "may not have 'temperature': give --temperature"),
    ],
    ids=lambda text: text[:20],
)
def test_more_keys_that_no_request_can_have_are_refused_by_name(text, words):
    with pytest.raises(LocalError, match=f"--extra-body .*{words}") as caught:
        extra_body(text)
    assert str(caught.value).isprintable()


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


@pytest.mark.parametrize("model", ["\udcff", "a\ud800"])
async def test_a_model_that_no_request_can_name_is_refused_at_the_start(model):
    with pytest.raises(LocalError, match=r"--model .* are not UTF-8"):
        async with endpoint("http://127.0.0.1:1/v1", model=model, key=None, temperature=1, max_bytes=99):
            pass


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


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "SAPO_NODE_API_KEY"), (403, "SAPO_NODE_API_KEY"), (404, "--model"), (402, "no credit"), (405, "--endpoint")],
)
async def test_a_server_that_can_never_answer_ends_the_node_after_one_request(status, words):
    with ChatServer(lambda _: (status, {}, b'{"error": "no credit"}')) as server:
        with pytest.raises(LocalError, match=f"{status}: 'no credit'.*") as caught:
            await ask(server.url, "one", "two")
        assert (type(caught.value), len(server.requests)) == (LocalError, 1)
        assert words in str(caught.value)


async def test_a_server_that_answered_before_is_asked_again_also_where_it_refuses_the_key():
    replies = [reply(*[choice("a")] * 4), (401, {}, b""), reply(*[choice("b")] * 4)]
    with ChatServer(lambda _: replies.pop(0)) as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=1, max_bytes=99) as answerer:
            await asking(answerer, "one")
            with pytest.raises(AnswerFailed, match="refuses the key"):
                await asking(answerer, "two")
            ((first, *_),) = await asking(answerer, "two")
    assert first.text == "b"


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


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_stays_broken_fails_after_three_requests_for_all_prompts_together(status):
    with ChatServer(lambda _: (status, {}, b"no model loaded")) as server:
        with pytest.raises(AnswerFailed, match=f"{status}: 'no model loaded'"):
            await ask(server.url, "one", "two", "three")
        assert len(server.requests) == 3


async def test_a_prompt_that_fails_again_and_again_does_not_cost_the_completions_of_the_others():
    def never_bad(request):
        return reply(*[choice("a")] * 4) if request["messages"][1]["content"] == "good" else (503, {}, b"")

    with ChatServer(never_bad) as server:
        async with endpoint(server.url, model="tiny", key=None, temperature=1, max_bytes=99) as answerer:
            for _ in range(module.ATTEMPTS - 1):
                with pytest.raises(AnswerFailed):
                    await asking(answerer, "good", "bad")
            good, bad = await asking(answerer, "good", "bad")
    assert [each.text for each in (*good, *bad)] == ["a"] * 4 + [""] * 4
    assert len(server.requests) == 1 + 3 * module.ATTEMPTS


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
