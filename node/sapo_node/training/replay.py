"""Local groups of earlier rounds, of which a round trains on correct completions again.

GRPO learns nothing from a group whose completions are all correct or all incorrect, and a policy that is hardly ever
correct has few other groups. `Replay` keeps those that have an advantage, and gives each of them to one later round
that lacks such groups. Only their correct completions are trained on again, with the advantages that they had. The
learner weighs each token by how much more or less probable it is for the policy of now (`grpo.importance`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from sapo_node.groups.record import LocalGroup

KEPT = 32
"""Groups that wait to be replayed, the newest ones. A restart forgets them."""


class Replay:
    """The groups that wait to be replayed."""

    def __init__(self) -> None:
        self._kept: deque[LocalGroup] = deque(maxlen=KEPT)

    def beside(self, local: Sequence[LocalGroup]) -> list[LocalGroup]:
        """Return the groups to train on beside those of a round: the newest first, at most one for each group of the
        round without an advantage. The others of the round wait for a later one.
        """
        informative = [group for group in local if any(group.advantages)]
        lacking = len(local) - len(informative)
        replayed = [self._kept.pop() for _ in range(min(lacking, len(self._kept)))]
        self._kept.extend(map(_successes, informative))
        return replayed

    def forget(self) -> None:
        """Drop all groups that wait: they were sampled with weights that are taken back."""
        self._kept.clear()


def _successes(group: LocalGroup) -> LocalGroup:
    """Return the group with its correct completions alone."""
    parts = zip(group.completions, group.rewards, group.advantages, strict=True)
    completions, rewards, advantages = zip(*(part for part in parts if part[2] > 0), strict=True)
    return replace(group, completions=completions, rewards=rewards, advantages=advantages)
