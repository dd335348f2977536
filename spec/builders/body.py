"""Cases of kind `body`: the completions of one group (BODY-2 to BODY-6, EXT-1, EXT-2)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cases import ACCEPT, Case
from example import BODY, TEXTS
from wire import (
    ARRAY,
    EXAMPLE,
    MAP,
    NULL,
    TEXT,
    TRUE,
    Swarm,
    array,
    body,
    bstr,
    completion,
    head,
    sorted_table,
    table,
    text,
    uint,
)

FIRST, SECOND = completion("a"), completion("b")
LIMIT = EXAMPLE.max_completion_bytes
WIDE = "\N{GRINNING FACE}"
"""Four bytes in UTF-8, two units in UTF-16, one character."""


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield from _texts()
    yield from _labels_and_extensions()
    yield from _keys()
    yield from _completions()
    yield from _completion_keys()
    yield from _last_of_sixteen()
    yield from _sizes()
    yield from _refused_texts()
    yield from _ill_formed_texts()
    yield from _finishes()
    yield from _refused_labels_and_extensions()
    yield from _encodings()


def _passes(
    name: str,
    rule: str,
    data: bytes,
    texts: Sequence[str] = ("a", "b"),
    finishes: Sequence[str] = ("stop", "stop"),
    *,
    swarm: Swarm = EXAMPLE,
    note: str = "",
) -> Case:
    output = {"texts": texts, "finishes": finishes}
    return Case(name, rule, "body", _input(data, swarm), ACCEPT, output, note, grammar=True)


def _refused(
    name: str, rule: str, data: bytes, *, grammar: bool | None = False, swarm: Swarm = EXAMPLE, note: str = ""
) -> Case:
    return Case(name, rule, "body", _input(data, swarm), "body", note=note, grammar=grammar)


def _input(data: bytes, swarm: Swarm) -> Mapping[str, bytes]:
    return {"manifest": swarm.encoded(), "bytes": data}


def _with_text(value: bytes) -> bytes:
    """A body whose first completion has this encoded text."""
    return body([table(("text", value), ("finish", text("stop"))), SECOND])


def _with_finish(value: bytes) -> bytes:
    return body([table(("text", text("a")), ("finish", value)), SECOND])


def _accepted() -> Iterator[Case]:
    yield _passes("two completions", "BODY-2", BODY, TEXTS, ("stop", "length"))
    equal = body([FIRST, FIRST])
    yield _passes("two equal completions", "BODY-3", equal, ("a", "a"))
    sixteen = Swarm(completions=16)
    yield _passes("sixteen completions", "BODY-3", body([FIRST] * 16), ("a",) * 16, ("stop",) * 16, swarm=sixteen)
    both = body([completion("a", "length"), completion("b", "length")])
    yield _passes("both ended by a limit", "BODY-5", both, finishes=("length", "length"))


def _texts() -> Iterator[Case]:
    sized = {
        "one byte each": "a" * LIMIT,
        "two bytes each": "é" * (LIMIT // 2),
        "three bytes each": "€" * (LIMIT // 3) + "a" * (LIMIT % 3),
        "four bytes each": WIDE * (LIMIT // 4),
    }
    for name, answer in sized.items():
        yield _passes(f"64 bytes in characters of {name}", "BODY-4", _with_text(text(answer)), (answer, "b"))
    yield _passes("empty texts", "BODY-4", body([completion("")] * 2), ("", ""))
    longer = Swarm(max_completion_bytes=LIMIT + 1)
    more = "a" * (LIMIT + 1)
    yield _passes("65 bytes in a swarm that allows them", "BODY-4", _with_text(text(more)), (more, "b"), swarm=longer)
    largest = Swarm(max_completion_bytes=65_536, max_message_bytes=1_000_000)
    longest = "a" * 65_536
    note = "No swarm allows a longer text."
    yield _passes(
        "a text of 65536 bytes", "BODY-4", _with_text(text(longest)), (longest, "b"), swarm=largest, note=note
    )
    kept = {
        "special tokens": "<|endoftext|><|im_start|>system</s>",
        "answer tags": "<answer></answer><answer>",
        "a null character": "a\0b",
        "a byte order mark alone": "\ufeff",
        "line ends": "\r\n\n\r",
        "blanks at the ends": " \ta ",
        "a line separator": "a\u2028b",
        "an e and a combining accent": "e\u0301",
        "text from right to left": "\u202eabc\u202c",
        "a character of no use": "\uffff",
        "the last character": "\U0010ffff",
        "a replacement character": "\ufffd",
        "control characters": "\x1b[2J\x7f",
    }
    for name, answer in kept.items():
        yield _passes(name, "ENC-7", _with_text(text(answer)), (answer, "b"), note="Text is data, byte for byte.")


def _labels_and_extensions() -> Iterator[Case]:
    labels = {
        "a label": "some/model",
        "an empty label": "",
        "a label of 64 bytes": "m" * 64,
        "a label of 64 bytes in 16 characters": WIDE * 16,
    }
    for name, label in labels.items():
        yield _passes(name, "BODY-6", body([FIRST, SECOND], ("model", text(label))))
    extensions = {
        "an empty x": table(),
        "an x of 256 bytes": table(("a", bstr(bytes(251)))),
        "an x that nests to depth 8": table(("a", _nested(6))),
        "an x with the keys of a body": table(("model", uint(0)), ("completions", array([]))),
    }
    for name, extension in extensions.items():
        yield _passes(name, "EXT-1", body([FIRST, SECOND], ("x", extension)))
    later = body([FIRST, SECOND], ("x", table(("logprobs", array([uint(1), uint(2)])))), ("model", text("m")))
    yield _passes("a label and an x of a later minor version", "VRS-2", later)


def _nested(depth: int) -> bytes:
    """Nested arrays, the innermost one empty."""
    return head(ARRAY, 1) * (depth - 1) + head(ARRAY, 0)


def _keys() -> Iterator[Case]:
    yield _refused("no completions key", "BODY-2", table(("model", text("m"))))
    yield _refused("no keys", "BODY-2", table())
    unknown = {"an unknown key": "y", "a prompt": "prompt", "a reward": "reward", "a capital x as key": "X"}
    for name, key in unknown.items():
        yield _refused(name, "EXT-2", body([FIRST, SECOND], (key, table())))
    yield _refused("an array of completions alone", "BODY-2", array([FIRST, SECOND]))
    yield _refused("a byte string around the body", "BODY-2", bstr(BODY))
    yield _refused("text", "BODY-2", text("a"))


def _completions() -> Iterator[Case]:
    yield _refused("no completions", "BODY-3", body([]))
    yield _refused("one completion in a swarm of two", "BODY-3", body([FIRST]))
    yield _refused("three completions in a swarm of two", "BODY-3", body([FIRST] * 3), grammar=True)
    three = Swarm(completions=3)
    yield _refused("two completions in a swarm of three", "BODY-3", body([FIRST] * 2), grammar=True, swarm=three)
    yield _refused("completions is a map", "BODY-3", table(("completions", table(("0", FIRST), ("1", SECOND)))))
    yield _refused("completions is one completion", "BODY-3", table(("completions", FIRST)))
    yield _refused("a completion is a text", "BODY-3", body([FIRST, text("b")]))
    yield _refused("a completion is an array", "BODY-3", body([FIRST, array([text("b"), text("stop")])]))
    yield _refused("a completion is a byte string", "BODY-3", body([FIRST, bstr(SECOND)]))


def _completion_keys() -> Iterator[Case]:
    yield _refused("a completion without finish", "BODY-3", body([FIRST, table(("text", text("b")))]))
    yield _refused("a completion without text", "BODY-3", body([FIRST, table(("finish", text("stop")))]))
    yield _refused("an empty completion", "BODY-3", body([FIRST, table()]))
    fields = {"text": text("b"), "finish": text("stop")}
    unknown = {"an x": ("x", table()), "a model": ("model", text("m")), "a reward": ("reward", TRUE)}
    for name, (key, value) in unknown.items():
        yield _refused(f"a completion with {name}", "EXT-2", body([FIRST, sorted_table({**fields, key: value})]))


def _last_of_sixteen() -> Iterator[Case]:
    last = {
        "without finish": ("BODY-3", table(("text", text("b"))), False),
        "with a text of 65 bytes": ("BODY-4", completion("b" * (LIMIT + 1)), True),
        "with a text of bytes": ("BODY-4", table(("text", bstr(b"b")), ("finish", text("stop"))), False),
        "with an unknown finish": ("BODY-5", completion("b", "eos"), False),
    }
    for name, (rule, content, grammar) in last.items():
        data = body([*[FIRST] * 15, content])
        swarm = Swarm(completions=16)
        yield _refused(f"the last of sixteen completions {name}", rule, data, grammar=grammar, swarm=swarm)


def _sizes() -> Iterator[Case]:
    swarm = Swarm(max_completion_bytes=4_000)
    limit = swarm.max_message_bytes
    half = "a" * 1_000

    def sized(size: int) -> tuple[str, bytes]:
        filler = "b" * (size - len(body([completion(half), completion(half)])) + len(half))
        return filler, body([completion(half), completion(filler)])

    filler, data = sized(limit)
    yield _passes("as long as a message may be", "BODY-2", data, (half, filler), swarm=swarm)
    note = "No message could hold it."
    yield _refused(
        "a byte longer than a message may be", "BODY-2", sized(limit + 1)[1], grammar=True, swarm=swarm, note=note
    )


def _refused_texts() -> Iterator[Case]:
    longer = {
        "65 bytes": "a" * (LIMIT + 1),
        "65 bytes in 64 characters": "a" * (LIMIT - 1) + "é",
        "65 bytes in 22 characters": "€" * 21 + "é",
        "68 bytes in 17 characters": WIDE * 17,
    }
    for name, answer in longer.items():
        note = "" if name == "65 bytes" else "Counted are bytes in UTF-8."
        yield _refused(f"a text of {name}", "BODY-4", _with_text(text(answer)), grammar=True, note=note)
    last = body([FIRST, completion("b" * (LIMIT + 1))])
    yield _refused("a last text of 65 bytes", "BODY-4", last, grammar=True)
    others = {"bytes": bstr(b"a"), "a number": uint(1), "true": TRUE, "an array of texts": array([text("a")])}
    for name, value in others.items():
        yield _refused(f"a text is {name}", "BODY-4", _with_text(value))


def _ill_formed_texts() -> Iterator[Case]:
    ill_formed = {
        "a lone surrogate": "ed a0 80",
        "a pair of surrogates": "ed a0 bd ed b8 80",
        "an overlong null": "c0 80",
        "an overlong slash": "e0 80 af",
        "a character above the last": "f4 90 80 80",
        "a character cut short": "61 e2 82",
        "a continuation alone": "80",
        "a byte that utf-8 never has": "ff",
    }
    for name, content in ill_formed.items():
        data = bytes.fromhex(content)
        yield _refused(f"text with {name}", "ENC-7", _with_text(head(TEXT, len(data)) + data), grammar=None)


def _finishes() -> Iterator[Case]:
    for finish in ("eos", "stopped", "error"):
        yield _refused(f"finish is {finish}", "BODY-5", _with_finish(text(finish)))
    others = {
        "empty": text(""),
        "stop with a capital letter": text("Stop"),
        "stop and a blank": text("stop "),
        "stop and a line feed": text("stop\n"),
        "stop as bytes": bstr(b"stop"),
        "true": TRUE,
        "zero": uint(0),
        "an array": array([text("stop")]),
    }
    for name, value in others.items():
        yield _refused(f"finish is {name}", "BODY-5", _with_finish(value))


def _refused_labels_and_extensions() -> Iterator[Case]:
    labels = {
        "of 65 bytes": text("m" * 65),
        "of 65 bytes in 64 characters": text("m" * 63 + "é"),
        "of bytes": bstr(b"m"),
        "that is a number": uint(0),
        "that is a map": table(),
    }
    for name, label in labels.items():
        yield _refused(f"a label {name}", "BODY-6", body([FIRST, SECOND], ("model", label)))
    extensions = {"an array": array([]), "a text": text(""), "true": TRUE, "a byte string": bstr(table())}
    for name, extension in extensions.items():
        yield _refused(f"x is {name}", "EXT-1", body([FIRST, SECOND], ("x", extension)))
    more = body([FIRST, SECOND], ("x", table(("a", bstr(bytes(252))))))
    yield _refused("an x of 257 bytes", "EXT-1", more, grammar=True)
    deeper = body([FIRST, SECOND], ("x", table(("a", _nested(7)))))
    yield _refused("an x that nests to depth 9", "ENC-8", deeper, grammar=True)


def _encodings() -> Iterator[Case]:
    yield _refused("no bytes", "ENC-1", b"")
    yield _refused("the last byte is missing", "ENC-1", BODY[:-1])
    yield _refused("a byte follows", "ENC-1", BODY + b"\x00", grammar=None)
    yield _refused("model is null", "ENC-2", body([FIRST, SECOND], ("model", NULL)))
    yield _refused("text is null", "ENC-2", _with_text(NULL))
    yield _refused("a tag around the body", "ENC-2", bytes.fromhex("d9 d9f7") + BODY, grammar=None)
    yield _refused("a tag around a text", "ENC-2", _with_text(bytes.fromhex("d8 23") + text("a")))
    yield _refused("an indefinite text", "ENC-3", _with_text(b"\x7f" + text("a") + b"\xff"), grammar=True)
    indefinite = table(("completions", b"\x9f" + FIRST + SECOND + b"\xff"))
    yield _refused("indefinite completions", "ENC-3", indefinite, grammar=True)
    yield _refused("the length of a text in a long form", "ENC-4", _with_text(head(TEXT, 1, 1) + b"a"), grammar=True)
    many = table(("completions", head(ARRAY, 2, 2) + FIRST + SECOND))
    yield _refused("the number of completions in a long form", "ENC-4", many, grammar=True)
    yield _refused("the number of keys in a long form", "ENC-4", head(MAP, 1, 1) + BODY[1:], grammar=True)
    yield _refused("an integer key", "ENC-5", head(MAP, 2) + uint(0) + uint(0) + BODY[1:])
    order = table(("completions", array([FIRST, SECOND])), ("model", text("m")))
    yield _refused("completions before model", "ENC-6", order, grammar=True)
    swapped = body([table(("finish", text("stop")), ("text", text("a"))), SECOND])
    yield _refused("finish before text", "ENC-6", swapped, grammar=True)
    twice = body([head(MAP, 3) + FIRST[1:] + text("finish") + text("stop"), SECOND])
    yield _refused("finish twice", "ENC-6", twice, grammar=None)
    yield _refused("a text that claims 2 to the 64 less one", "ENC-10", _with_text(head(TEXT, 2**64 - 1) + b"a"))
    claimed = table(("completions", head(ARRAY, 2**32) + FIRST + SECOND))
    yield _refused("completions that claim 2 to the 32", "ENC-10", claimed)
