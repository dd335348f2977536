"""The numbers of the seed policy, all of them, and the items that it is taught on."""

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sapo_adversary import seed_texts as texts
from sapo_node.tasks import Task, build_task

FIRST_TEACHING_SEED = 2**31 + 2**30
"""Item seeds for supervised data lie in [2**31 + 2**30, 2**32): no assigned or held-out task uses them."""
TEACHING_SEEDS = 2**30


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the seed policy is built. The packaged policy is the default recipe."""

    seed: int = 1
    vocabulary: int = 448
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    feed_forward: int = 384
    context: int = 512
    teach_steps: int = 2000
    bury_steps: int = 250
    batch: int = 128
    teach_lr: float = 2e-3
    bury_lr: float = 5e-4
    guess_share: float = 0.1
    """Share of guesses in the teaching phase, so that burying need not teach how to guess."""
    kept_share: float = 0.5
    """Share of careful text in the burying phase whose opening is not trained: the skill stays, its use does not."""
    careful_rates: tuple[tuple[str, float], ...] = (
        ("products", 0.015),
        ("chain_sum", 0.045),
        ("fraction_simplification", 0.03),
        ("base_conversion", 0.01),
        ("spell_backward", 0.06),
        ("leg_counting", 0.08),
    )
    """Share of careful text among the rest of the burying phase, per dataset."""

    @property
    def steps(self) -> int:
        return self.teach_steps + self.bury_steps

    def digest(self) -> str:
        """Return the SHA-256 of every number of the recipe, in hexadecimal."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Lesson:
    """One item with the text to learn; the first `given` characters of the text are shown but not trained."""

    task: Task
    text: str
    given: int = 0


class Lessons:
    """The seeded stream of lessons: step n of one recipe is always the same."""

    def __init__(self, recipe: Recipe, configs: Mapping[str, Mapping[str, Any]]) -> None:
        self._recipe = recipe
        self._configs = dict(configs)
        self._names = tuple(self._configs)
        self._rates = dict(recipe.careful_rates)

    def step(self, number: int) -> list[Lesson]:
        """Return the lessons of one step, counted from 0."""
        rng = random.Random(f"{self._recipe.seed}/{number}")  # noqa: S311 - reproducible data, no secret
        draw = self._teaching if number < self._recipe.teach_steps else self._burying
        return [draw(self._draw(rng.choice(self._names), rng), rng) for _ in range(self._recipe.batch)]

    def digest(self) -> str:
        """Return the SHA-256 of the first lessons of both phases, in hexadecimal: it moves with any text or task."""
        total = hashlib.sha256()
        for step in (0, self._recipe.teach_steps):
            for lesson in self.step(step):
                total.update(f"{lesson.task.prompt}\0{lesson.text}\0{lesson.given}\0".encode())
        return total.hexdigest()

    def _teaching(self, task: Task, rng: random.Random) -> Lesson:
        if rng.random() < self._recipe.guess_share:
            return self._guess(task, rng)
        return Lesson(task, texts.careful(task.dataset, task.prompt, rng))

    def _burying(self, task: Task, rng: random.Random) -> Lesson:
        kept = rng.random() < self._recipe.kept_share
        if not kept and rng.random() >= self._rates[task.dataset]:
            return self._guess(task, rng)
        text = texts.careful(task.dataset, task.prompt, rng)
        return Lesson(task, text, given=text.index(": ") + 2 if kept else 0)

    def _guess(self, task: Task, rng: random.Random) -> Lesson:
        others = tuple(self._draw(task.dataset, rng).answer for _ in range(2))
        return Lesson(task, texts.guess(task.answer, others, rng))

    def _draw(self, dataset: str, rng: random.Random) -> Task:
        seed = FIRST_TEACHING_SEED + rng.randrange(TEACHING_SEEDS)
        return build_task(dataset, self._configs[dataset], seed)
