"""Cases of kind `body`: the completions of one group (BODY-2 to BODY-7, EXT-1, EXT-2)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

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
    completion_of,
    head,
    sorted_table,
    table,
    text,
    uint,
)

FIRST, SECOND = completion("a"), completion("b")
LIMIT = EXAMPLE.max_completion_bytes
TALK = Swarm(tasks=[replace(EXAMPLE.tasks[0], turns=3), *EXAMPLE.tasks[1:]])
"""The example swarm with three turns for its first task."""
MOST_TURNS = Swarm(tasks=[replace(EXAMPLE.tasks[0], turns=16)])
WIDE = "\N{GRINNING FACE}"
"""Four bytes in UTF-8, two units in UTF-16, one character."""


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield from _turns()
    yield from _refused_turns()
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
    texts: Sequence[str | Sequence[str]] = ("a", "b"),
    finishes: Sequence[str] = ("stop", "stop"),
    *,
    swarm: Swarm = EXAMPLE,
    note: str = "",
) -> Case:
    """`texts` has the turns of each completion, or its text if it has one turn."""
    turns = [[each] if isinstance(each, str) else each for each in texts]
    output = {"turns": turns, "finishes": finishes}
    return Case(name, rule, "body", _input(data, swarm), ACCEPT, output, note, grammar=True)


def _refused(
    name: str, rule: str, data: bytes, *, grammar: bool | None = False, swarm: Swarm = EXAMPLE, note: str = ""
) -> Case:
    return Case(name, rule, "body", _input(data, swarm), "body", note=note, grammar=grammar)


def _input(data: bytes, swarm: Swarm) -> Mapping[str, bytes]:
    return {"manifest": swarm.encoded(), "bytes": data}


def _with_text(value: bytes) -> bytes:
    """A body whose first completion has this encoded text for its turn."""
    return _with_turns(array([value]))


def _with_turns(value: bytes) -> bytes:
    return body([table(("turns", value), ("finish", text("stop"))), SECOND])


def _with_finish(value: bytes) -> bytes:
    return body([table(("turns", array([text("a")])), ("finish", value)), SECOND])


def _accepted() -> Iterator[Case]:
    yield _passes("two completions", "BODY-2", BODY, TEXTS, ("stop", "length"))
    equal = body([FIRST, FIRST])
    yield _passes("two equal completions", "BODY-3", equal, ("a", "a"))
    sixteen = Swarm(completions=16)
    yield _passes("sixteen completions", "BODY-3", body([FIRST] * 16), ("a",) * 16, ("stop",) * 16, swarm=sixteen)
    both = body([completion("a", "length"), completion("b", "length")])
    yield _passes("both ended by a limit", "BODY-5", both, finishes=("length", "length"))


def _turns() -> Iterator[Case]:
    three = completion_of(["a", "", "c"])
    yield _passes("three turns", "BODY-7", body([three, SECOND]), (["a", "", "c"], "b"), swarm=TALK)
    note = "The most turns of any task: which task it is, is not asked here."
    yield _passes(
        "three turns and two",
        "BODY-7",
        body([three, completion_of("ab")]),
        (["a", "", "c"], ["a", "b"]),
        swarm=TALK,
        note=note,
    )
    most = list("abcdefghijklmnop")
    yield _passes("sixteen turns", "BODY-7", body([completion_of(most), SECOND]), (most, "b"), swarm=MOST_TURNS)
    note = "Counted are the texts of all turns together."
    halves = ["a" * (LIMIT // 2), "é" * (LIMIT // 4)]
    yield _passes(
        "two turns of 32 bytes", "BODY-4", body([completion_of(halves), SECOND]), (halves, "b"), swarm=TALK, note=note
    )
    last = completion_of(["a" * (LIMIT // 2), "é" * (LIMIT // 4), "a"])
    yield _refused(
        "three turns of 65 bytes together", "BODY-4", body([last, SECOND]), grammar=True, swarm=TALK, note=note
    )


def _refused_turns() -> Iterator[Case]:
    two = body([completion_of("ab"), SECOND])
    yield _refused("two turns in a swarm of one", "BODY-7", two, grammar=True)
    four = body([FIRST, completion_of("abcd")])
    yield _refused("four turns in a swarm of three", "BODY-7", four, grammar=True, swarm=TALK)
    seventeen = body([FIRST, completion_of("a" * 17)])
    yield _refused("seventeen turns", "BODY-7", seventeen, swarm=MOST_TURNS)
    for name, swarm in {"": EXAMPLE, " in a swarm of three": TALK}.items():
        yield _refused(f"no turns{name}", "BODY-7", _with_turns(array([])), swarm=swarm)
    values = {
        "a text": text("a"),
        "a number": uint(1),
        "true": TRUE,
        "a map": table(("0", text("a"))),
        "a text within two arrays": array([array([text("a")])]),
    }
    for name, value in values.items():
        yield _refused(f"turns are {name}", "BODY-7", _with_turns(value))
    others = {"bytes": bstr(b"a"), "a number": uint(1), "true": TRUE}
    for name, value in others.items():
        yield _refused(f"a turn is {name}", "BODY-7", _with_text(value))
    yield _refused("a second turn is bytes", "BODY-7", _with_turns(array([text("a"), bstr(b"b")])), swarm=TALK)


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
    turns = array([text("b")])
    yield _refused("a completion without finish", "BODY-3", body([FIRST, table(("turns", turns))]))
    yield _refused("a completion without turns", "BODY-3", body([FIRST, table(("finish", text("stop")))]))
    text_of_version_1 = table(("text", text("b")), ("finish", text("stop")))
    yield _refused("a completion with a text in place of turns", "BODY-3", body([FIRST, text_of_version_1]))
    yield _refused("an empty completion", "BODY-3", body([FIRST, table()]))
    fields = {"turns": turns, "finish": text("stop")}
    unknown = {"an x": ("x", table()), "a model": ("model", text("m")), "a reward": ("reward", TRUE)}
    for name, (key, value) in unknown.items():
        yield _refused(f"a completion with {name}", "EXT-2", body([FIRST, sorted_table({**fields, key: value})]))


def _last_of_sixteen() -> Iterator[Case]:
    last = {
        "without finish": ("BODY-3", table(("turns", array([text("b")]))), False),
        "with a text of 65 bytes": ("BODY-4", completion("b" * (LIMIT + 1)), True),
        "with a turn of bytes": ("BODY-7", table(("turns", array([bstr(b"b")])), ("finish", text("stop"))), False),
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
    swapped = body([table(("finish", text("stop")), ("turns", array([text("a")]))), SECOND])
    yield _refused("finish before turns", "ENC-6", swapped, grammar=True)
    twice = body([head(MAP, 3) + FIRST[1:] + text("finish") + text("stop"), SECOND])
    yield _refused("finish twice", "ENC-6", twice, grammar=None)
    yield _refused("a text that claims 2 to the 64 less one", "ENC-10", _with_text(head(TEXT, 2**64 - 1) + b"a"))
    claimed = table(("completions", head(ARRAY, 2**32) + FIRST + SECOND))
    yield _refused("completions that claim 2 to the 32", "ENC-10", claimed)
