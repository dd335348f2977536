"""Assignment (TASK-1, TASK-2) and the datasets that the text defines (ITEM-1 to ITEM-3), written from the text."""

from collections.abc import Callable, Mapping, Sequence

from wire import EXAMPLE, Swarm, array, bstr, sha256, sorted_table, text, uint

Config = Mapping[str, int]

CONFIGS: Sequence[Config] = ({"max": 9}, {"letters": 3}, {"max": 99, "count": 3})
"""The configurations of the example swarm's tasks, in order."""


def encoded_config(config: Config) -> bytes:
    return sorted_table({key: uint(value) for key, value in config.items()})


def draw(issuer: bytes, epoch: int, counter: int, k: int, *, swarm: Swarm = EXAMPLE) -> bytes:
    parts = [text("sapo/task/2"), bstr(swarm.network_id), bstr(issuer), uint(epoch), uint(counter), uint(k)]
    return sha256(array(parts))


def assigned(issuer: bytes, epoch: int, counter: int, k: int, *, swarm: Swarm = EXAMPLE) -> tuple[int, int]:
    """Index in the catalogue and seed of one task."""
    drawn = draw(issuer, epoch, counter, k, swarm=swarm)
    number = int.from_bytes(drawn[:8], "big") % sum(task.weight for task in swarm.tasks)
    sums = [sum(task.weight for task in swarm.tasks[: i + 1]) for i in range(len(swarm.tasks))]
    index = next(i for i, weights in enumerate(sums) if weights > number)
    return index, int.from_bytes(drawn[8:12], "big") % 2**31


def item(dataset: str, config: Config, seed: int) -> tuple[str, str]:
    """Prompt and answer."""
    drawn = sha256(array([text("sapo/item/1"), text(dataset), uint(seed)]))
    return _FORMULAS[dataset]([int.from_bytes(drawn[4 * i : 4 * i + 4], "big") for i in range(8)], config)


def digest(prompt: str, answer: str) -> bytes:
    return sha256(array([text(prompt), text(answer)]))


def example_item(issuer: bytes, epoch: int, counter: int, k: int, *, swarm: Swarm = EXAMPLE) -> tuple[str, str]:
    """Prompt and answer of one task of the example swarm, or of a swarm with its tasks."""
    index, seed = assigned(issuer, epoch, counter, k, swarm=swarm)
    return item(swarm.tasks[index].dataset, CONFIGS[index], seed)


def _sum(numbers: Sequence[int], config: Config) -> tuple[str, str]:
    a, b = numbers[0] % (config["max"] + 1), numbers[1] % (config["max"] + 1)
    return f"What is {a} + {b}?", str(a + b)


def _reverse(numbers: Sequence[int], config: Config) -> tuple[str, str]:
    word = "".join("abcdefghijklmnopqrstuvwxyz"[number % 26] for number in numbers[: config["letters"]])
    return f"Write {word} backwards.", word[::-1]


def _largest(numbers: Sequence[int], config: Config) -> tuple[str, str]:
    values = [number % (config["max"] + 1) for number in numbers[: config["count"]]]
    listed = ", ".join(str(value) for value in values[:-1])
    return f"Which is the largest of {listed} and {values[-1]}?", str(max(values))


_FORMULAS: Mapping[str, Callable[[Sequence[int], Config], tuple[str, str]]] = {
    "interop_sum": _sum,
    "interop_reverse": _reverse,
    "interop_largest": _largest,
}
