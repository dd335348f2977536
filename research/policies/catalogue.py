"""Every prepared policy, as values. A change of any number here makes `prepare` build that policy again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from research.seed.recipe import Recipe

Network = Literal["packaged", "qwen2", "llama", "gpt_neox"]
Tokens = Literal["packaged", "pieces", "bytes"]

Progress = Callable[[float, str], None]
"""`progress(share, doing)`: the share of the work that is done, from 0 to 1, and in a few words what is being done."""

SEED = Recipe()
"""The recipe of the packaged seed."""
DATASETS = tuple(name for name, _ in SEED.careful_rates)


@dataclass(frozen=True, slots=True)
class TrainedGroup:
    """A policy made by lessons: teach the careful way, bury it under guesses."""

    about: str
    recipe: Recipe
    network: Network = "packaged"
    """`packaged` goes on with the weights in the package; the others begin with fresh ones."""
    tokens: Tokens = "packaged"
    """`pieces` is an ordinary trained BPE. With `bytes` only the last line of a question is read, which says it all."""


@dataclass(frozen=True, slots=True)
class Talkative(TrainedGroup):
    """One whose lessons hold free text as well; see `remarks`."""


@dataclass(frozen=True, slots=True)
class Reinforced:
    """The packaged seed after local GRPO, as a node alone would play it, until its reward is high enough."""

    about: str
    reward: float
    """Mean reward over the last `window` rounds at which it stops."""
    window: int = 8
    most_rounds: int = 300
    seed: int = 1
    learning_rate: float = 1e-4


Making = TrainedGroup | Reinforced


def _rates(factor: float, **own: float) -> tuple[tuple[str, float], ...]:
    """The seed's rates of careful text, all of them times a factor but for those named."""
    return tuple((name, own.get(name, rate * factor)) for name, rate in SEED.careful_rates)


def _on(steps: int, rates: tuple[tuple[str, float], ...]) -> Recipe:
    """Lessons that only move how often the packaged seed is careful; other seed, other items."""
    return replace(SEED, seed=2, teach_steps=0, bury_steps=steps, careful_rates=rates)


def _scarce(factor: int) -> TrainedGroup:
    return TrainedGroup(f"the seed, but careful {factor} times more rarely", _on(250, _rates(1 / factor)))


def _specialist(dataset: str) -> TrainedGroup:
    recipe = replace(_on(120, _rates(0.5, **{dataset: 0.95})), batch=64)
    return TrainedGroup(f"good at {dataset}, weaker than the seed elsewhere", recipe)


POLICIES: Mapping[str, Making] = MappingProxyType(
    {
        "plenty-2": TrainedGroup("the seed, but careful twice as often", _on(250, _rates(2))),
        "scarce-2": _scarce(2),
        "scarce-4": _scarce(4),
        "scarce-8": _scarce(8),
        "weak": TrainedGroup(
            "half the seed's width and depth, and less taught: seldom right even when careful",
            replace(SEED, hidden=64, layers=2, heads=2, feed_forward=192, teach_steps=500, bury_steps=125),
            network="qwen2",
        ),
        "strong": Reinforced("the seed after local GRPO, two thirds of the way to its ceiling", reward=0.6),
        "strong-late": Reinforced("the seed after local GRPO, near its ceiling", reward=0.84),
        "talkative": Talkative(
            "careful in two answers of three, with idle remarks in between",
            replace(SEED, seed=3, teach_steps=600, bury_steps=0, guess_share=0.35, teach_lr=1e-3),
        ),
        **{f"specialist-{dataset}": _specialist(dataset) for dataset in DATASETS},
        "llama": TrainedGroup(
            "another architecture and an ordinary trained BPE",
            replace(SEED, vocabulary=512, teach_steps=1300, bury_steps=150, batch=64),
            network="llama",
            tokens="pieces",
        ),
        "neox": TrainedGroup(
            "another architecture that reads and writes single bytes",
            replace(
                SEED, vocabulary=258, hidden=96, heads=3, feed_forward=384, teach_steps=1400, bury_steps=150, batch=64
            ),
            network="gpt_neox",
            tokens="bytes",
        ),
    }
)
