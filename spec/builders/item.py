"""Cases of kind `item`: the datasets that the text defines, and configurations that they refuse (ITEM-1 to ITEM-3)."""

from collections.abc import Iterable, Iterator, Mapping

from cases import ACCEPT, Case
from tasks import Config, digest, encoded_config, item
from wire import TRUE, array, bstr, sorted_table, table, text, uint

RULES: Mapping[str, str] = {"interop_sum": "ITEM-1", "interop_reverse": "ITEM-2", "interop_largest": "ITEM-3"}
SEED = 24
LAST_SEED = 2**31 - 1


def _passes(name: str, dataset: str, config: Config, seed: int = SEED, *, rule: str = "", note: str = "") -> Case:
    prompt, answer = item(dataset, config, seed)
    output = {"question": prompt, "answer": answer, "digest": digest(prompt, answer)}
    fields = {"dataset": dataset, "config": encoded_config(config), "seed": seed}
    return Case(name, rule or RULES[dataset], "item", fields, ACCEPT, output, note)


def _fails(name: str, dataset: str, config: bytes, rule: str = "", note: str = "") -> Case:
    fields = {"dataset": dataset, "config": config, "seed": SEED}
    return Case(name, rule or RULES[dataset], "item", fields, "task", note=note)


def cases() -> Iterable[Case]:
    yield from _sums()
    yield from _words()
    yield from _largest()
    yield from _datasets()


def _number(dataset: str, key: str, low: int, high: int, config: Config) -> Iterator[Case]:
    """`key` of the dataset at its bounds, outside them, and of other types."""
    short = dataset.removeprefix("interop_")
    for value in (low, high):
        yield _passes(f"{short} with {key} {value}", dataset, {**config, key: value})
    encoded = {name: uint(value) for name, value in config.items()}
    invalid = {
        str(low - 1): uint(low - 1),
        str(high + 1): uint(high + 1),
        "2 to the 64 less one": uint(2**64 - 1),
        "of text": text(str(high)),
        "that is true": TRUE,
        "in an array": array([uint(high)]),
    }
    for what, value in invalid.items():
        yield _fails(f"{short} with {key} {what}", dataset, sorted_table({**encoded, key: value}))
    missing = sorted_table({name: value for name, value in encoded.items() if name != key})
    yield _fails(f"{short} without {key}", dataset, missing)


def _sums() -> Iterator[Case]:
    for seed in (0, 1, LAST_SEED):
        yield _passes(f"sum of seed {seed}", "interop_sum", {"max": 99}, seed)
    note = "Never assigned (TASK-1), but an item as any other."
    yield _passes(f"sum of seed {2**31}", "interop_sum", {"max": 99}, 2**31, note=note)
    yield _passes("the digest of question and answer", "interop_sum", {"max": 9}, rule="TASK-2")
    yield from _number("interop_sum", "max", 1, 1_000_000, {"max": 9})
    yield _fails("sum with an unknown key", "interop_sum", table(("max", uint(9)), ("min", uint(1))))
    yield _fails("sum with the key of another dataset", "interop_sum", table(("letters", uint(3))))
    yield _fails("sum with a key in capitals", "interop_sum", table(("MAX", uint(9))))


def _words() -> Iterator[Case]:
    for seed in (0, LAST_SEED):
        yield _passes(f"reverse of seed {seed}", "interop_reverse", {"letters": 5}, seed)
    yield from _number("interop_reverse", "letters", 2, 7, {"letters": 3})
    yield _fails("reverse with an x", "interop_reverse", table(("x", table()), ("letters", uint(3))))


def _largest() -> Iterator[Case]:
    config = {"max": 99, "count": 3}
    for seed in (0, LAST_SEED):
        yield _passes(f"largest of seed {seed}", "interop_largest", config, seed)
    yield from _number("interop_largest", "count", 2, 7, config)
    yield from _number("interop_largest", "max", 1, 1_000_000, config)
    twice = next(seed for seed in range(1000) if _repeats(seed))
    yield _passes("largest of equal numbers", "interop_largest", {"max": 1, "count": 3}, twice)
    unknown = sorted_table({"max": uint(99), "count": uint(3), "min": uint(0)})
    yield _fails("largest with an unknown key", "interop_largest", unknown)


def _repeats(seed: int) -> bool:
    return item("interop_largest", {"max": 1, "count": 3}, seed)[0] == "Which is the largest of 1, 1 and 1?"


def _datasets() -> Iterator[Case]:
    config = encoded_config({"max": 9})
    names = {
        "an unknown dataset": "interop_product",
        "a dataset in capitals": "INTEROP_SUM",
        "a dataset with a hyphen": "interop-sum",
        "a dataset with a blank": "interop_sum ",
        "a dataset by half its name": "sum",
        "a dataset without a name": "",
    }
    for name, dataset in names.items():
        yield _fails(name, dataset, config, "ITEM-1")
    for what, invalid in {"an array": array([uint(9)]), "an integer": uint(9), "bytes": bstr(config)}.items():
        yield _fails(f"a configuration that is {what}", "interop_sum", invalid)
    yield _fails("an empty configuration", "interop_reverse", table())
