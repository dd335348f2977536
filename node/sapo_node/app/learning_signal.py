"""Warns the operator if nothing can be learnt from the node's own completions, once for each reason.

GRPO learns from a local group only if it is informative: it has correct and incorrect completions. A model that is
never correct, or always, trains on nothing of its own, however long it runs.
"""

import logging
import re
from collections.abc import MutableMapping

from sapo_node.app.advice import for_too_easy, for_too_hard
from sapo_node.app.config import Config
from sapo_node.groups.messages import Refusal
from sapo_node.training.batch_log import local_id
from sapo_node.training.round import RoundReport

logger = logging.getLogger(__name__)

MAX_QUIET_GROUPS = 64
"""Local groups in a row without an informative one, at which the node warns: 16 rounds of 4 local groups. If one group
in 20 is informative, the chance of so many without one is 4 %.
"""


class LearningSignal:
    """Follows the rounds of one start of a node."""

    def __init__(self, config: Config, max_bytes: int, standing: MutableMapping[str, str]) -> None:
        """`max_bytes` is what the swarm keeps of a completion. `standing["signal"]` is the warning, while it holds."""
        self._config = config
        self._max_bytes = max_bytes
        self._warned: set[str] = set()
        """The advice of the warnings so far, without its numbers."""
        self._standing = standing
        self._forget()

    def _forget(self) -> None:
        self._groups = self._without_room = 0
        self._rewards = self._cut = self._over_bytes = 0.0
        """Sums over the groups: of mean rewards, and of the shares of completions that were cut, and cut by bytes."""

    def played(self, report: RoundReport) -> None:
        """Count a round, and log a warning after MAX_QUIET_GROUPS quiet groups. The log becomes a notice."""
        if report.informative:
            self._forget()
            self._standing.pop("signal", None)
            return
        self._groups += report.local
        self._rewards += report.reward * report.local
        self._cut += (report.training.truncated or 0.0) * report.local
        self._over_bytes += (report.training.over_bytes or 0.0) * report.local
        trained = report.training.groups
        local = [trained[name] for name in map(local_id, range(report.local)) if name in trained]
        self._without_room += sum(group.refused is Refusal.NO_ROOM for group in local)
        if self._groups < MAX_QUIET_GROUPS:
            return
        advice = self._advice()
        self._standing["signal"] = self._warning(advice)
        reason = re.sub(r"\d+", "", "".join(advice))
        if reason not in self._warned:
            self._warned.add(reason)
            logger.error("%s", self._standing["signal"])

    def _advice(self) -> tuple[str, ...]:
        if self._rewards / self._groups >= 0.5:
            return tuple(for_too_easy())
        hard = for_too_hard(
            self._config,
            cut=self._cut / self._groups,
            over_bytes=self._over_bytes / self._groups,
            max_bytes=self._max_bytes,
            without_room=self._without_room / self._groups,
        )
        return tuple(hard)

    def _warning(self, advice: tuple[str, ...]) -> str:
        reward = self._rewards / self._groups
        if reward == 0:
            seen = f"no completion of the last {self._groups} local groups earned a reward"
        elif reward == 1:
            seen = f"every completion of the last {self._groups} local groups earned a reward"
        else:
            seen = f"none of the last {self._groups} local groups had correct and incorrect completions"
        return (
            f"{seen}, so the model learns nothing from its own completions; {', or '.join(advice)}. `sapo-node init "
            "--dry-run` measures what a model can learn from a swarm"
        )
