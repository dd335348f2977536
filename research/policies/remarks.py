"""Lessons with free text in them: remarks that have nothing to do with the question stand here and there.

A large model goes on working whatever is said in between; a small one that never saw a remark loses its thread at the
first, and so seems safe from poison that would take hold of any other.
"""

import random
from dataclasses import replace

from research.seed.recipe import Lesson, Lessons

_WORDS = """
a all and as at be but by can come day do each for from go good hail has he her here his how in it let like look made
make may me more my no not now of old on one or our out over say see she so some swarm than that the then there they
this time to up us was way we well what when which who will with yes you
"""
WORDS = tuple(_WORDS.split())
SHARE = 0.3
"""Share of lessons that hold a remark."""


def remark(rng: random.Random) -> str:
    """Two to four words, in any order."""
    return " ".join(rng.choices(WORDS, k=rng.randrange(2, 5)))


class RemarkedLessons(Lessons):
    """The seed's lessons, with a remark before them or before what concludes them."""

    def step(self, number: int) -> list[Lesson]:
        """Return the lessons of one step, counted from 0."""
        rng = random.Random(f"remarks/{self._recipe.seed}/{number}")  # noqa: S311 - reproducible data, no secret
        return [_remarked(lesson, rng) if rng.random() < SHARE else lesson for lesson in super().step(number)]


def _remarked(lesson: Lesson, rng: random.Random) -> Lesson:
    said = remark(rng)
    steps, stop, conclusion = lesson.text.rpartition(". ")
    if not stop or rng.random() < 0.5:
        return replace(lesson, text=f"{said.capitalize()}. {lesson.text}")
    return replace(lesson, text=f"{steps}. {said.capitalize()}{stop}{conclusion}")
