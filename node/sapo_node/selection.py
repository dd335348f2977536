"""How wanted each verified group on offer is: the rules by which SAPO and its public releases chose, and one of ours.

The paper drops groups without advantage and draws uniformly from the rest; its code also took the groups with the most
right answers, and at other times drew from all. None of them asks what the receiver can do already, and a strong node
gained nothing from weak peers. `informative` asks: what is tried at the edge of the receiver's own ability comes first,
and a right answer counts by how much better it is than what the receiver does itself.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Literal

from sapo_node.advantage import advantages
from sapo_node.competence import Competence
from sapo_node.verify import VerifiedGroup

Selection = Literal["paper", "uniform", "top-k", "unfiltered", "informative"]
"""`paper` draws by trust and age, `uniform` as the paper has it, `unfiltered` from flat groups as well."""

SPREAD = 0.35
"""Least deviation by which an own advantage is divided, so that a task hardly ever solved does not drown the others."""
EDGE = 0.05
"""Least preference of a task, as a share of the highest: nothing is ever shut out for good by a bad estimate."""


def preference(group: VerifiedGroup, competence: Competence) -> float:
    """How near a group's task lies to the edge of one's own ability: b (1 - b) of the own pass rate b, at most 1."""
    rate = competence.pass_rate(group.dataset)
    return 1.0 if rate is None else max(EDGE, 4 * rate * (1 - rate))


def own_advantages(rewards: Sequence[bool], rate: float | None) -> tuple[float, ...]:
    """Advantages against the receiver's own pass rate b on the task, (r - b) / max(sqrt(b (1 - b)), SPREAD).

    The sender's group has no say in them: neither a rare success among staged failures nor a good day counts for more
    than it is worth here. Where the own rate is not known yet the group's own advantages stand in.
    """
    if rate is None or len(set(rewards)) < 2:
        return advantages(rewards)
    deviation = max(sqrt(rate * (1 - rate)), SPREAD)
    return tuple((reward - rate) / deviation for reward in rewards)
