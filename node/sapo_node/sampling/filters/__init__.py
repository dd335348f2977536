"""Gates: what a right answer must be, besides right, before it teaches.

Re-verification tells right from wrong; it cannot see what a right answer teaches beside the answer. Each gate looks at
that from one side, against the one measure that nobody else can forge: what this policy itself says and knows. A gate
only keeps texts out of a round's training. It never changes anybody's standing: good peers have habits, too.

`baseline` says what a right answer counts. `habits`, `length` and `steps` read texts, and `agreement` hears what the
learner says of them, here; `surprise` and `follows` need the policy's probabilities and are in the learner,
`sapo_node.learner.filters`.
"""

from collections.abc import Iterable, Sequence

from sapo_node.groups.messages import Gate
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.agreement import AgreementGate, GradientVote
from sapo_node.sampling.filters.baseline import against_own
from sapo_node.sampling.filters.habits import HabitGate, Span
from sapo_node.sampling.filters.length import LengthGate
from sapo_node.sampling.filters.steps import steps_hold
from sapo_node.sampling.pass_rates import PassRates


class Gates:
    """The gates outside the learner."""

    def __init__(self, names: Iterable[str], pass_rates: PassRates) -> None:
        """Those named; the names of the learner's gates mean nothing here."""
        names = frozenset(names)
        self._pass_rates = pass_rates
        self._baseline = "baseline" in names
        self._habits = HabitGate() if "habits" in names else None
        self._length = LengthGate() if "length" in names else None
        self._steps = "steps" in names
        self._agreement = AgreementGate() if "agreement" in names else None

    def observe(self, local: Sequence[LocalGroup], heard: Sequence[GradientVote] = ()) -> None:
        """Take in a round's own answers, and what the learner said of others'."""
        for gate in (self._habits, self._length):
            if gate:
                gate.observe(local)
        if self._agreement:
            self._agreement.observe(heard)

    def sift(self, offered: Sequence[VerifiedGroup]) -> tuple[list[VerifiedGroup], list[tuple[VerifiedGroup, Gate]]]:
        """Those on offer from which there is something to learn, and those from which there is nothing, with the gate
        that stopped their first right answer: they would take the places of others for as long as they wait.
        """
        if self._habits:
            self._habits.look(offered)
        if not self._stops:
            return list(offered), []
        kept: list[VerifiedGroup] = []
        stopped: list[tuple[VerifiedGroup, Gate]] = []
        for group in offered:
            gates = list(self.stopped(group).values())
            if gates and len(gates) == sum(group.rewards) < len(group.rewards):
                stopped.append((group, gates[0]))
            else:
                kept.append(group)
        return kept, stopped

    def judge(self, group: VerifiedGroup, advantages: tuple[float, ...]) -> tuple[float, ...]:
        """The advantages, 0 where a right answer must not teach."""
        if self._baseline:
            advantages = against_own(group.rewards, advantages, self._pass_rates.pass_rate(group.dataset))
        stopped = self.stopped(group)
        if not stopped:
            return advantages
        return tuple(0.0 if number in stopped else advantage for number, advantage in enumerate(advantages))

    def stopped(self, group: VerifiedGroup) -> dict[int, Gate]:
        """The right answers of a group that must not teach, by number, and which gate says so."""
        if not self._stops:
            return {}
        return {
            number: gate
            for number, (completion, right) in enumerate(zip(group.completions, group.rewards, strict=True))
            if right and (gate := self._why(group, completion.text))
        }

    def silent(self, group: VerifiedGroup) -> tuple[tuple[Span, ...], ...]:
        """For each completion, the characters of it that are not taught."""
        if not self._habits:
            return ()
        return tuple(self._habits.silent(completion.text) for completion in group.completions)

    @property
    def _stops(self) -> bool:
        """Whether any gate stops whole answers: most swarms have none, and pools are large."""
        return self._steps or self._length is not None or self._agreement is not None

    def _why(self, group: VerifiedGroup, text: str) -> Gate | None:
        """Which gate stops a right answer, if any."""
        if self._steps and not steps_hold(text):
            return "steps"
        if self._length and not self._length.admits(group.dataset, text):
            return "length"
        if self._agreement and not self._agreement.admits(group.peer, group.dataset):
            return "agreement"
        return None
