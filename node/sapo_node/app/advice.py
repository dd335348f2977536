"""Advice for an operator whose model learns nothing from its own completions, and the signal that gives it.

GRPO learns from a local group only if the group is informative: its completions earn different
rewards. A model that is never correct, or always, trains on nothing of its own, however long it runs.
"""

import logging
import re
from collections.abc import MutableMapping

from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.groups.messages import Refusal
from sapo_node.groups.prompt import MAX_EXAMPLES
from sapo_node.observability.tasks import MAX_QUIET_GROUPS
from sapo_node.training.batch_log import local_id
from sapo_node.training.round import RoundReport

EASY_SWARM = "smollm2-easy"
"""The shipped swarm with the easiest tasks."""
FEW_EXAMPLES = 3
"""Worked examples that teach most models to use the answer tags."""
MANY_CUT = 0.5
"""Share of completions cut at the limit from which a higher limit may help."""
BYTES_PER_TOKEN = 3
"""Bytes of English text in one token, at least. Most tokenizers have 3 to 4."""


def too_long_for(config: Config, max_bytes: int) -> str:
    """Return a notice if completions of `max_tokens` tokens hardly fit into the `max_bytes` that a swarm keeps of each.
    Raises ModelError.
    """
    max_tokens = recipe_of(config).max_tokens
    if not config.train or BYTES_PER_TOKEN * max_tokens <= max_bytes:
        return ""
    return (
        f"the swarm keeps {max_bytes:,} bytes of a completion, and {max_tokens:,} tokens have about "
        f"{BYTES_PER_TOKEN * max_tokens:,} or more: an answer after the first {max_bytes:,} bytes is lost. Give at "
        f"most --max-tokens {max_bytes // BYTES_PER_TOKEN}, or a swarm that keeps more"
    )


def for_too_hard(
    config: Config, *, cut: float, over_bytes: float, max_bytes: int, without_room: float = 0.0
) -> list[str]:
    """Return what may help if a model is hardly ever correct. `cut` is the share of its completions cut at the limit,
    `over_bytes` the share cut at the `max_bytes` that the swarm keeps, and `without_room` the share of prompts that did
    not fit into the model together with a completion.
    """
    recipe = recipe_of(config)
    is_over = cut >= MANY_CUT and over_bytes > cut / 2
    found = []
    if without_room:
        # More tokens or more examples would leave room for still fewer prompts.
        ways = "fewer --examples, or a lower --max-tokens" if recipe.examples else "a lower --max-tokens"
        found.append(f"give {ways}, because {without_room:.0%} of the prompts do not fit into the model")
    elif is_over:
        ways = "a lower --max-tokens, no --thinking," if config.thinking else "a lower --max-tokens"
        found.append(
            f"give {ways} or a swarm that keeps more of a completion than {max_bytes:,} bytes, because "
            f"{over_bytes:.0%} of the completions are cut there"
        )
    elif cut >= MANY_CUT:
        found.append(f"raise --max-tokens, because {cut:.0%} of the completions are cut at {recipe.max_tokens} tokens")
    if recipe.examples < MAX_EXAMPLES and not without_room:
        more = MAX_EXAMPLES if recipe.examples >= FEW_EXAMPLES else FEW_EXAMPLES
        found.append(f"show the model more worked examples than {recipe.examples}: --examples {more}")
    # The easy swarm keeps the fewest bytes.
    if config.swarm != EASY_SWARM and not is_over:
        found.append(f"join a swarm with easier tasks: --swarm {EASY_SWARM}")
    return [*found, "give a larger model"]


def for_too_easy() -> list[str]:
    """Return what may help if a model is always correct."""
    return ["join a swarm with harder tasks"]


logger = logging.getLogger(__name__)


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
        self._pass_rates = self._cut = self._over_bytes = 0.0
        """Sums over the groups: of pass rates, and of the shares of completions that were cut, and cut by bytes."""

    def played(self, report: RoundReport) -> None:
        """Count a round, and log a warning after MAX_QUIET_GROUPS quiet groups. The log becomes a notice."""
        if report.informative:
            self._forget()
            self._standing.pop("signal", None)
            return
        self._groups += report.local
        self._pass_rates += report.pass_rate * report.local
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
        if self._pass_rates / self._groups >= 0.5:
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
        pass_rate = self._pass_rates / self._groups
        if pass_rate == 0:
            seen = f"no completion of the last {self._groups} local groups was correct"
        elif pass_rate == 1:
            seen = f"every completion of the last {self._groups} local groups was correct"
        else:
            seen = f"none of the last {self._groups} local groups had completions with different rewards"
        return (
            f"{seen}, so the model learns nothing from its own completions; {', or '.join(advice)}. `sapo-node init "
            "--dry-run` measures what a model can learn from a swarm"
        )
