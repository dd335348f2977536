"""Cases of kind `manifest`: each key, each bound from both sides (MAN-1 to MAN-7)."""

from collections.abc import Iterable, Iterator, Mapping

from cases import ACCEPT, Case
from wire import (
    EXAMPLE,
    MAP,
    NULL,
    TRUE,
    UINT,
    Swarm,
    array,
    bstr,
    head,
    sha256,
    sorted_table,
    table,
    text,
    uint,
)

LARGEST = 65_536
BOUNDS = {
    "genesis": (0, 2**40),
    "epoch_seconds": (5, 86_400),
    "max_rounds": (1, 100_000),
    "completions": (2, 16),
    "max_completion_bytes": (16, 65_536),
    "max_message_bytes": (2_000, 1_000_000),
    "inline_bytes": (0, 1_000_000),
    "shards": (1, 32),
}
TASK_BOUNDS = {"weight": (1, 2**32), "scorer": (1, 65_536), "levels": (1, 255), "turns": (1, 16)}
TASK = {
    "turns": uint(1),
    "config": table(("max", uint(9))),
    "levels": uint(1),
    "scorer": uint(2),
    "weight": uint(1),
    "dataset": text("interop_sum"),
}
DIGEST = "5d" * 32
SOURCE = {"file": text(DIGEST), "rows": uint(7_473), "origin": text(""), "answers": text("number")}


def _passes(name: str, rule: str, data: bytes, note: str = "") -> Case:
    topic = f"/sapo/2/{sha256(data).hex()}"
    output = {"network_id": sha256(data), "rollouts": f"{topic}/rollouts/0", "evidence": f"{topic}/evidence"}
    return Case(name, rule, "manifest", {"bytes": data}, ACCEPT, output, note, grammar=True)


def _fails(name: str, rule: str, data: bytes, *, grammar: bool | None = False, note: str = "") -> Case:
    return Case(name, rule, "manifest", {"bytes": data}, "manifest", note=note, grammar=grammar)


def _with(**values: bytes) -> bytes:
    """The example manifest with some values replaced or added."""
    return Swarm(values).encoded()


def _with_task(**values: bytes) -> bytes:
    return _with(tasks=array([sorted_table(TASK | values)]))


def _without(key: str, values: Mapping[str, bytes]) -> bytes:
    return sorted_table({name: value for name, value in values.items() if name != key})


def _spoken(key: str) -> str:
    return key.replace("_", " ")


def cases() -> Iterable[Case]:
    yield from _whole()
    yield from _keys()
    yield from _versions()
    yield from _numbers()
    yield from _names()
    yield from _other_texts()
    yield from _task_lists()
    yield from _tasks()
    yield from _sources()
    yield from _source_texts()
    yield from _extensions()


def _padded(size: int) -> bytes:
    """A manifest of exactly `size` bytes, most of them in a task's configuration."""
    spare = size - len(_with_task(config=table(("pad", bstr(bytes(60_000)))))) + 60_000
    return _with_task(config=table(("pad", bstr(bytes(spare)))))


def _whole() -> Iterator[Case]:
    encoded = EXAMPLE.encoded()
    yield _passes("the example swarm", "MAN-1", encoded)
    yield _passes("65536 bytes", "MAN-1", _padded(LARGEST))
    yield _passes("another genesis", "MAN-6", _with(genesis=uint(EXAMPLE.genesis + 1)))
    yield _passes("another name", "MAN-6", _with(name=text("examples")))

    values = EXAMPLE.values
    ordered = sorted(values.items(), key=lambda pair: text(pair[0]))
    alphabetic = table(*sorted(values.items()))
    deep = _with_task(config=table(("a", array([array([array([array([array([])])])])]))))
    many = _with_task(config=table(("a", array([uint(0)] * 4_090))))
    long_version = _with(version=head(UINT, 2, 1))
    yield _fails("65537 bytes", "MAN-1", _padded(LARGEST + 1), grammar=True)
    yield _fails("no bytes", "MAN-1", b"", grammar=None)
    yield _fails("an array of its values", "MAN-1", array(values.values()))
    yield _fails("a manifest within a byte string", "MAN-1", bstr(encoded))
    yield _fails("a byte after it", "MAN-1", encoded + b"\x00", grammar=None)
    yield _fails("the last byte missing", "MAN-1", encoded[:-1], grammar=None)
    yield _fails("a map whose length takes a byte", "MAN-1", head(MAP, 13, 1) + encoded[1:], grammar=True)
    yield _fails("an indefinite map", "MAN-1", b"\xbf" + encoded[1:] + b"\xff", grammar=True)
    yield _fails("a longer integer", "MAN-1", long_version, grammar=True)
    yield _fails("keys in alphabetic order", "MAN-1", alphabetic, grammar=True)
    yield _fails("the last two keys swapped", "MAN-1", table(*ordered[:-2], *reversed(ordered[-2:])), grammar=True)
    yield _fails("a key twice", "MAN-1", table(ordered[0], *ordered), grammar=None)
    yield _fails("a configuration too deep", "MAN-1", deep, grammar=True)
    yield _fails("a configuration of too many items", "MAN-1", many, grammar=True)


def _keys() -> Iterator[Case]:
    for key in EXAMPLE.values:
        yield _fails(f"{_spoken(key)} missing", "MAN-1", _without(key, EXAMPLE.values))
    yield _fails("an unknown key", "MAN-1", _with(rounds=uint(1)))
    yield _fails("a key in capitals", "MAN-1", _without("shards", EXAMPLE.values | {"Shards": uint(1)}))
    yield _fails("an own key outside x", "EXT-2", _with(**{"example.org/note": uint(1)}))


def _versions() -> Iterator[Case]:
    yield _passes("version 2", "MAN-2", _with_task())
    yield _fails("version 0", "MAN-2", _with(version=uint(0)))
    yield _fails("version 1", "VRS-1", _with(version=uint(1)))
    yield _fails("version 3", "VRS-1", _with(version=uint(3)))
    yield _fails("version 65538", "MAN-2", _with(version=uint(65_538)))
    yield _fails("a version of text", "MAN-2", _with(version=text("2")))
    yield _fails("a version that is true", "MAN-2", _with(version=TRUE))
    yield _fails("a version with a minor version", "MAN-2", _with(version=text("2.0")))


def _numbers() -> Iterator[Case]:
    for key, (low, high) in BOUNDS.items():
        for number in sorted({low, high}):
            yield _passes(f"{_spoken(key)} of {number}", "MAN-3", _with(**{key: uint(number)}))
        if low > 0:
            yield _fails(f"{_spoken(key)} of {low - 1}", "MAN-3", _with(**{key: uint(low - 1)}))
        yield _fails(f"{_spoken(key)} of {high + 1}", "MAN-3", _with(**{key: uint(high + 1)}))
        yield _fails(f"{_spoken(key)} of text", "MAN-3", _with(**{key: text(str(high))}))
    yield _fails("shards that are true", "MAN-3", _with(shards=TRUE))
    yield _fails("max rounds in an array", "MAN-3", _with(max_rounds=array([uint(100)])))
    yield _fails("genesis of 2 to the 64 less one", "MAN-3", _with(genesis=uint(2**64 - 1)))


def _names() -> Iterator[Case]:
    good = {"one letter": "a", "32 characters": "a" * 32, "a digit first": "9-lives", "a hyphen last": "swarm-"}
    for what, name in good.items():
        yield _passes(f"a name of {what}", "MAN-4", _with(name=text(name)))
    refused = {
        "33 characters": "a" * 33,
        "no characters": "",
    }
    for what, name in refused.items():
        yield _fails(f"a name of {what}", "MAN-4", _with(name=text(name)))
    beyond = {
        "a hyphen first": "-swarm",
        "a capital": "Swarm",
        "an underscore": "two_words",
        "a blank": "two words",
        "a dot": "a.b",
        "a slash": "a/b",
        "a line feed at its end": "swarm\n",
        "a zero byte at its end": "swarm\0",
        "a letter with an accent": "caf\u00e9",
        "a digit of another script": "swarm\u0663",
    }
    for what, name in beyond.items():
        yield _fails(f"a name with {what}", "MAN-4", _with(name=text(name)), grammar=True)
    yield _fails("a name of bytes", "MAN-4", _with(name=bstr(b"swarm")))


def _other_texts() -> Iterator[Case]:
    yield _passes("reasoning gym of 32 bytes", "MAN-4", _with(reasoning_gym=text("1" * 32)))
    yield _passes("reasoning gym of 16 characters in 32 bytes", "MAN-4", _with(reasoning_gym=text("\u00e9" * 16)))
    yield _fails("reasoning gym of 33 bytes", "MAN-4", _with(reasoning_gym=text("1" * 33)))
    yield _fails("reasoning gym of 17 characters in 34 bytes", "MAN-4", _with(reasoning_gym=text("\u00e9" * 17)))
    yield _fails("reasoning gym of bytes", "MAN-4", _with(reasoning_gym=bstr(b"")))
    yield _fails("reasoning gym of an integer", "MAN-4", _with(reasoning_gym=uint(0)))

    digits = EXAMPLE.network_id.hex()
    yield _passes("a predecessor", "MAN-4", _with(predecessor=text(digits)))
    predecessors = {
        "of 63 digits": digits[1:],
        "of 62 digits": digits[2:],
        "in capitals": digits.upper(),
        "with a letter beyond f": "g" + digits[1:],
        "of blanks": " " * 64,
        "with a prefix": "0x" + digits[2:],
        "with a line feed for its last digit": digits[1:] + "\n",
    }
    for what, predecessor in predecessors.items():
        yield _fails(f"a predecessor {what}", "MAN-4", _with(predecessor=text(predecessor)), grammar=True)
    yield _fails("a predecessor of 65 digits", "MAN-4", _with(predecessor=text(digits + "0")))
    yield _fails("a predecessor and a line feed", "MAN-4", _with(predecessor=text(digits + "\n")))
    yield _fails("a predecessor of bytes", "MAN-4", _with(predecessor=bstr(EXAMPLE.network_id)))


def _task_lists() -> Iterator[Case]:
    task = sorted_table(TASK)
    other = sorted_table(TASK | {"weight": uint(3)})
    yield _passes("64 tasks", "MAN-5", _with(tasks=array([task] * 64)))
    yield _passes("a dataset with two weights", "MAN-5", _with(tasks=array([task, other])))
    yield _fails("no task", "MAN-5", _with(tasks=array([])))
    yield _fails("65 tasks", "MAN-5", _with(tasks=array([task] * 65)))
    yield _fails("tasks by name", "MAN-5", _with(tasks=table(("interop_sum", task))))
    yield _fails("a task outside its array", "MAN-5", _with(tasks=task))
    yield _fails("a second task without a weight", "MAN-5", _with(tasks=array([task, _without("weight", TASK)])))
    last = {
        "without a weight": _without("weight", TASK),
        "of weight zero": sorted_table(TASK | {"weight": uint(0)}),
        "with a configuration of text": sorted_table(TASK | {"config": text("max=9")}),
    }
    for what, bad in last.items():
        yield _fails(f"the last of 64 tasks {what}", "MAN-5", _with(tasks=array([*[task] * 63, bad])))
    values = array(TASK.values())
    yield _fails("a task of values only", "MAN-5", _with(tasks=array([values])))


def _tasks() -> Iterator[Case]:
    for key in TASK:
        yield _fails(f"a task without {key}", "MAN-5", _with(tasks=array([_without(key, TASK)])))
    yield _fails("a task with an unknown key", "MAN-5", _with_task(seed=uint(1)))
    yield _fails(
        "a task with an x", "EXT-2", _with_task(x=table()), note="x is allowed in the manifest, not in its tasks."
    )
    for key, (low, high) in TASK_BOUNDS.items():
        for number in (low, high):
            yield _passes(f"{key} of {number}", "MAN-5", _with_task(**{key: uint(number)}))
        for number in (low - 1, high + 1):
            yield _fails(f"{key} of {number}", "MAN-5", _with_task(**{key: uint(number)}))
        yield _fails(f"{key} that is true", "MAN-5", _with_task(**{key: TRUE}))
        yield _fails(f"{key} of text", "MAN-5", _with_task(**{key: text("1")}))

    yield _passes("a dataset of one byte", "MAN-5", _with_task(dataset=text("a")))
    yield _passes("a dataset of 64 bytes", "MAN-5", _with_task(dataset=text("a" * 64)))
    yield _fails("a dataset of no bytes", "MAN-5", _with_task(dataset=text("")))
    yield _fails("a dataset of 65 bytes", "MAN-5", _with_task(dataset=text("a" * 65)))
    yield _fails("a dataset of 33 characters in 66 bytes", "MAN-5", _with_task(dataset=text("\u00e9" * 33)))
    yield _fails("a dataset of bytes", "MAN-5", _with_task(dataset=bstr(b"interop_sum")))

    every_type = sorted_table({"a": uint(1), "b": bstr(b""), "c": text(""), "d": TRUE, "e": array([table()])})
    deep = table(("a", array([array([array([])])])))
    yield _passes("an empty configuration", "MAN-5", _with_task(config=table()))
    yield _passes("a configuration of every type", "MAN-5", _with_task(config=every_type))
    yield _passes("a configuration as deep as allowed", "MAN-5", _with_task(config=deep))
    for what, config in {
        "an array": array([]),
        "text": text("max=9"),
        "bytes": bstr(table()),
        "a boolean": TRUE,
    }.items():
        yield _fails(f"a configuration of {what}", "MAN-5", _with_task(config=config))
    yield _fails("a configuration with an integer key", "MAN-1", _with_task(config=head(MAP, 1) + uint(1) + uint(1)))
    yield _fails("a configuration with a null", "MAN-1", _with_task(config=table(("max", NULL))))
    order = table(("min", uint(1)), ("max", uint(9)))
    yield _fails("a configuration with keys out of order", "MAN-1", _with_task(config=order), grammar=True)


def _with_source(**values: bytes) -> bytes:
    return _with_task(source=sorted_table(SOURCE | values))


def _sources() -> Iterator[Case]:
    yield _passes("a task from a file", "MAN-7", _with_source())
    for kind in ("exact", "choice", "math"):
        yield _passes(f"answers of kind {kind}", "MAN-7", _with_source(answers=text(kind)))
    for key in SOURCE:
        without = _with_task(source=_without(key, SOURCE))
        yield _fails(f"a source without {key}", "MAN-7", without)
    yield _fails("a source with an unknown key", "MAN-7", _with_source(split=text("train")))
    yield _fails("a source with an x", "EXT-2", _with_source(x=table()))
    for what, source in {
        "an array": array(SOURCE.values()),
        "text": text(DIGEST),
        "bytes": bstr(bytes(32)),
        "an empty map": table(),
        "a boolean": TRUE,
    }.items():
        yield _fails(f"a source of {what}", "MAN-7", _with_task(source=source))
    low, high = 32, 2**24
    for number in (low, high):
        yield _passes(f"a source of {number} rows", "MAN-7", _with_source(rows=uint(number)))
    for number in (low - 1, high + 1):
        yield _fails(f"a source of {number} rows", "MAN-7", _with_source(rows=uint(number)))
    yield _fails("a source whose rows are text", "MAN-7", _with_source(rows=text("7473")))
    yield _fails("a source whose rows are true", "MAN-7", _with_source(rows=TRUE))
    last = sorted_table(TASK | {"source": _without("rows", SOURCE)})
    yield _fails(
        "the last of 64 tasks with a bad source", "MAN-7", _with(tasks=array([*[sorted_table(TASK)] * 63, last]))
    )


def _source_texts() -> Iterator[Case]:
    files = {
        "of 63 digits": DIGEST[1:],
        "in capitals": DIGEST.upper(),
        "with a letter beyond f": "g" + DIGEST[1:],
        "with a line feed for its last digit": DIGEST[1:] + "\n",
        "of no digits": "",
    }
    for what, file in files.items():
        grammar = len(file) == 64
        yield _fails(f"a file {what}", "MAN-7", _with_source(file=text(file)), grammar=grammar)
    yield _fails("a file and a line feed", "MAN-7", _with_source(file=text(DIGEST + "\n")))
    yield _fails("a file of bytes", "MAN-7", _with_source(file=bstr(bytes.fromhex(DIGEST))))
    for what, answers in {
        "of another kind": text("code"),
        "in capitals": text("Number"),
        "of no kind": text(""),
        "of a kind in bytes": bstr(b"number"),
        "of two kinds": array([text("exact"), text("number")]),
    }.items():
        yield _fails(f"answers {what}", "MAN-7", _with_source(answers=answers))
    yield _passes("an origin of 512 bytes", "MAN-7", _with_source(origin=text("a" * 512)))
    yield _passes("an origin of 256 characters in 512 bytes", "MAN-7", _with_source(origin=text("\u00e9" * 256)))
    yield _fails("an origin of 513 bytes", "MAN-7", _with_source(origin=text("a" * 513)))
    yield _fails("an origin of 257 characters in 514 bytes", "MAN-7", _with_source(origin=text("\u00e9" * 257)))
    yield _fails("an origin of bytes", "MAN-7", _with_source(origin=bstr(b"")))
    hint = array([text("/dnsaddr/example.org")])
    note = "The hint of bootstrap peers is beside the manifest, not in it."
    yield _fails("bootstrap peers", "MAN-1", _with(bootstrap=hint), note=note)


def _extensions() -> Iterator[Case]:
    yield _passes("an empty x", "EXT-1", _with(x=table()))
    yield _passes("an x of 256 bytes", "EXT-1", _with(x=table(("a", bstr(bytes(251))))))
    yield _passes("an x with a key of a later minor version", "VRS-2", _with(x=table(("max_rounds", uint(1)))))
    yield _passes("an x with an own key", "EXT-2", _with(x=table(("example.org/note", text("hello")))))
    yield _fails("an x of 257 bytes", "EXT-1", _with(x=table(("a", bstr(bytes(252))))), grammar=True)
    for what, x in {"an array": array([]), "text": text(""), "bytes": bstr(table()), "a boolean": TRUE}.items():
        yield _fails(f"an x of {what}", "EXT-1", _with(x=x))
    yield _fails("an x with an integer key", "MAN-1", _with(x=head(MAP, 1) + uint(1) + uint(1)))
    yield _fails("an x with keys out of order", "MAN-1", _with(x=table(("b", uint(1)), ("a", uint(1)))), grammar=True)
    later = _with(stake=uint(1))
    yield _fails("a key of a later minor version outside x", "VRS-2", later)
