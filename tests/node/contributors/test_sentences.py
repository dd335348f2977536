"""What a server says went wrong is shown whole, on one printable line."""

import pytest

from sapo_node.contributors.exchange import MAX_SENTENCE, sentence_of

SENTENCES = {
    "of vLLM": (
        b'{"error": {"message": "LoRA rank 16 is too high.", "type": "x", "code": 500}}',
        "LoRA rank 16 is too high.",
    ),
    "of an older vLLM": (b'{"object": "error", "message": "no such model", "code": 404}', "no such model"),
    "of SGLang": (b'{"success": false, "error_message": "no room", "loaded_adapters": {}}', "no room"),
    "of Starlette": (b'{"detail": "Not Found"}', "Not Found"),
    "of Ollama": (b'{"error": "model is missing"}', "model is missing"),
    "of FastAPI": (
        b'{"detail": [{"loc": ["body", "n"], "msg": "too high"}, {"loc": ["body"], "msg": "no"}]}',
        "body.n: too high; body: no",
    ),
    "with an empty part": (b'{"error": {"message": ""}, "detail": "gone"}', "gone"),
    "as a list": (b'[{"error": {"message": "one"}}, "two"]', "one; two"),
    "as JSON text": (b'"no"', "no"),
    "without a known key": (b'{"code": 7}', '{"code": 7}'),
    "as text": (b"Bad\r\nGateway\x1b[2J", "Bad Gateway\\x1b[2J".replace("Bad Gateway", "Bad  Gateway")),
    "too deep": (b'{"error":' * 20 + b'"x"' + b"}" * 20, '{"error":' * 20 + '"x"' + "}" * 20),
    "no UTF-8": (b"\xff", "\ufffd"),
    "none": (b"", ""),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_sentence_of_a_server_is_found_in_its_reply(name):
    reply, sentence = SENTENCES[name]
    assert sentence_of(reply) == sentence


def test_a_long_sentence_is_cut():
    assert sentence_of(b'{"error": "%s"}' % (b"a" * 5000)) == "a" * MAX_SENTENCE


def test_a_reply_that_is_too_deep_for_json_is_shown_as_text():
    assert sentence_of(b"[" * 100_000) == "[" * MAX_SENTENCE
