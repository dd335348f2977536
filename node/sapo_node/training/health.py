"""Watches whether this node still learns, and acts when its policy decays.

Three alarms:

- `entropy`: the entropy of local completions fell below COLLAPSED of the highest it was, while the pass rate is low;
- `informative`: the share of informative local groups did, by more than chance;
- `held-out`: the mean of the last two evaluations is below the highest such mean, by more than chance.

A low pass rate is a mean below LOW_PASS_RATE: a policy that is nearly always correct has little entropy and few
informative groups, and is no collapse. One that always earns the same part of an answer has collapsed. The first two
compare means of WINDOW rounds. After each alarm these means begin anew.

Each alarm halves the learning rate of the later steps. A mean of evaluations that none before it exceeds takes one
halving back. So do CALM evaluations in a row without an alarm: the highest mean is high by chance, so a policy that has
recovered may not reach it again for thousands of rounds. After `held-out` the next step also starts from the best
weights, if the mean is below their evaluation, too. Rate and start are stored with the batch of that step, so that a
replay repeats them. The best evaluation is that with the highest point estimate, the newest of equals. All evaluations
ask the same prompts, so their difference is less noisy than their intervals say.

Figures of a model that was asked in another way (`max_tokens`, `examples`, `thinking`) are not compared. After such a
change the next evaluation is the first one: it is the best, and replaces the best weights of before.

If steps are taken back, the best weights of these steps go, and their figure stays for the comparison. Else peers
that make the node take steps back after each evaluation would keep it from ever seeing its policy decay.

    health.observe(step, pass_rate=0.2, informative=0.5, groups=4, entropy=0.4)
    better = health.is_best(interval)
    health.evaluated(step, interval)
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Literal

from msgspec import Meta

from sapo_node.groups.codec import Count, Entropy, Finite, MalformedError, Share, from_json, to_object
from sapo_node.groups.stats import Interval, mean_of_intervals, wilson_interval
from sapo_node.storage.database import Database

logger = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS health (id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS health_alarms (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, step INTEGER NOT NULL, text TEXT NOT NULL, at REAL NOT NULL
) STRICT;
"""

WINDOW = 20
"""Rounds in the means that are compared."""
COLLAPSED = 0.25
"""Part of its highest mean below which a figure has collapsed. Measured on a real language model: a run that collapsed
fell to 0.19 (informative groups) and 0.22 (entropy), and one that learnt to 0.9 and 0.48."""
LOW_PASS_RATE = 0.5
"""Mean pass rate below which a collapse is one."""
NO_CHANCE = 0.999
"""Level of the intervals of two shares of informative groups, or of two means of evaluations, which must not overlap
if one is a fall of the other. The highest of many figures is high by chance: without this test a policy that stayed
as it was, with a share of 0.08 in rounds of four groups, raised six alarms in 1,000 rounds, and with it none."""
RATE_FACTOR = 0.5
"""Each alarm multiplies the learning rate by this. What takes a halving back divides it by this, up to 1."""
CALM = 4
"""Evaluations in a row without an alarm that take one halving back."""
LEAST_SCALE = 1 / 16
"""Least factor of all alarms on the learning rate: a node that stops learning cannot recover."""
MAX_ALARMS = 64
"""Alarms that the record keeps."""

Kind = Literal["entropy", "informative", "held-out"]


@dataclass(frozen=True, slots=True)
class HealthAlarm:
    """One sign that the policy decays, and what the node did."""

    number: int
    kind: Kind
    step: int
    """The step after which the alarm was raised."""
    text: str
    at: float
    """Unix time."""

    def __str__(self) -> str:
        return f"round {self.step}: {self.text}"


@dataclass(frozen=True, slots=True)
class _Best:
    step: Count
    point: Share
    low: Finite


@dataclass(frozen=True, slots=True)
class _State:
    rate_scale: Annotated[float, Meta(ge=LEAST_SCALE, le=1)] = 1.0
    restart: Count | None = None
    best: _Best | None = None
    """The best evaluation of which the weights are kept."""
    pass_rates: tuple[Share, ...] = ()
    """Figures of the last WINDOW rounds, as the next two."""
    informative: tuple[Share, ...] = ()
    entropies: tuple[Entropy, ...] = ()
    most_informative: Share = 0.0
    """The highest mean of WINDOW rounds, as the next one."""
    most_entropy: Entropy = 0.0
    highest: _Best | None = None
    """The highest mean of an evaluation and the one before it, also of those whose steps were taken back."""
    newest: Interval | None = None
    """The newest evaluation; None if the node goes back after it."""
    calm: Count = 0
    """Evaluations since the last alarm, or since a halving was taken back."""
    asked: str = ""
    """The settings with which the model was asked for all these figures."""


class Health:
    """The watch over one node, with its state in the node's database."""

    def __init__(self, database: Database, now: Callable[[], float], asked: str = "") -> None:
        """`now` gives the Unix time. `asked` says how the model is asked, if that may change between two starts: with
        another way figures begin anew. State that this version cannot read is forgotten with a warning.
        """
        self._database = database
        self._now = now
        self._state = _State()
        for state in database.documents("SELECT state FROM health"):
            try:
                self._state = from_json(_State, state)
            except MalformedError as error:
                logger.warning("the state of the learning alarms is of another version and is forgotten: %s", error)
        old = self._state
        if asked and old.asked not in {"", asked}:
            logger.warning(
                "the model is now asked with %s, before with %s: figures of before are not compared with later ones, "
                "and the next evaluation is the best",
                *(asked, old.asked),
            )
            self._state = _State(old.rate_scale, old.restart)
        self._state = replace(self._state, asked=asked)

    @property
    def rate_scale(self) -> float:
        """Factor on the learning rate of the next step."""
        return self._state.rate_scale

    @property
    def needed(self) -> frozenset[int]:
        """The steps of the best weights that the node may still use."""
        best = {self._state.best.step} if self._state.best else set()
        return frozenset(best if self._state.restart is None else {*best, self._state.restart})

    def take_restart(self) -> int | None:
        """Return the step of the best weights from which the next step starts, once; None if it goes on from the last.
        Call this in the transaction that stores the batch of that step.
        """
        restart = self._state.restart
        if restart is not None:
            self._save(replace(self._state, restart=None))
        return restart

    def observe(self, step: int, *, pass_rate: float, informative: float, groups: int, entropy: float | None) -> None:
        """Take in a round: the pass rate, the informative share of its `groups`, and the entropy if there is one."""
        old = self._state
        state = replace(
            old,
            pass_rates=_longer(old.pass_rates, pass_rate),
            informative=_longer(old.informative, informative),
            entropies=old.entropies if entropy is None else _longer(old.entropies, entropy),
        )
        found = _collapse(state, groups)
        if found:
            kind, text = found
            self._raise(kind, step, text, self._measured_anew())
            return
        self._save(
            replace(
                state,
                most_informative=max(old.most_informative, _mean(state.informative)),
                most_entropy=max(old.most_entropy, _mean(state.entropies)),
            )
        )

    def is_best(self, held_out: Interval) -> bool:
        """Return whether an evaluation is at least as good as all whose weights are kept, by its point estimate."""
        return _exceeds(held_out, self._state.best)

    def evaluated(self, step: int, held_out: Interval) -> None:
        """Take in an evaluation of the averaged weights after a step, which are kept if it is the best. Its interval is
        of the level NO_CHANCE.
        """
        old = self._state
        # One evaluation is so noisy that intervals which rule out chance would overlap after most falls.
        mean = mean_of_intervals([old.newest, held_out] if old.newest else [held_out])
        best = _Best(step, held_out.point, held_out.low) if self.is_best(held_out) else old.best
        if old.highest and mean.high < old.highest.low:
            text = f"mean held-out pass@1 fell to {mean.point:.3f}, from {old.highest.point:.3f} after round"
            text = f"{text} {old.highest.step}"
            restart = old.best.step if old.best and mean.high < old.best.low else None
            if restart is not None:
                text = f"{text}: the node goes back to the weights of round {restart}"
            newest = held_out if restart is None else None  # the next one is not of these weights
            self._raise(
                "held-out", step, text, replace(self._measured_anew(), best=best, restart=restart, newest=newest)
            )
            return
        is_highest = _exceeds(mean, old.highest)
        highest = _Best(step, mean.point, mean.low) if is_highest else old.highest
        scale, calm = old.rate_scale, old.calm + 1
        if old.highest and (is_highest or calm == CALM):
            scale, calm = min(1.0, scale / RATE_FACTOR), 0
        self._save(replace(old, rate_scale=scale, best=best, highest=highest, newest=held_out, calm=calm))

    def forget_after(self, step: int) -> None:
        """Forget the best weights of later steps, which hold the groups that were taken back. Their figure stays."""
        state = self._state
        if state.best and state.best.step > step:
            state = replace(state, best=None)
        if state.restart is not None and state.restart > step:
            state = replace(state, restart=None)
        self._save(state)

    def _measured_anew(self) -> _State:
        """The state after an alarm: without the rounds so far."""
        old = self._state
        return replace(old, pass_rates=(), informative=(), entropies=(), most_informative=0.0, most_entropy=0.0)

    def _raise(self, kind: Kind, step: int, text: str, state: _State) -> None:
        scale = max(LEAST_SCALE, state.rate_scale * RATE_FACTOR)
        text = f"{text}; learning rate times {scale:g}"
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO health_alarms (kind, step, text, at) VALUES (?, ?, ?, ?)", kind, step, text, self._now()
            )
            self._database.execute(
                "DELETE FROM health_alarms WHERE number <= (SELECT max(number) FROM health_alarms) - ?", MAX_ALARMS
            )
            self._save(replace(state, rate_scale=scale, calm=0))
        logger.warning("round %d: %s", step, text)

    def _save(self, state: _State) -> None:
        self._database.execute("INSERT OR REPLACE INTO health VALUES (1, ?)", json.dumps(to_object(state)))
        self._state = state


def health_alarms(database: Database) -> list[HealthAlarm]:
    """The alarms, newest first."""
    rows = database.rows("SELECT number, kind, step, text, at FROM health_alarms ORDER BY number DESC")
    return [HealthAlarm(*row) for row in rows]


def _collapse(state: _State, groups: int) -> tuple[Kind, str] | None:
    """Return the figure that has collapsed, if one has, with a sentence; `groups` as in `observe`."""
    if len(state.pass_rates) < WINDOW or _mean(state.pass_rates) >= LOW_PASS_RATE:
        return None
    share, entropy = _mean(state.informative), _mean(state.entropies)
    if share < COLLAPSED * state.most_informative and _is_fall(state.most_informative, share, WINDOW * groups):
        return "informative", f"informative local groups fell to {share:.0%}, from {state.most_informative:.0%}"
    if len(state.entropies) == WINDOW and entropy < COLLAPSED * state.most_entropy:
        return "entropy", f"entropy of local completions fell to {entropy:.2f} nats, from {state.most_entropy:.2f}"
    return None


def _is_fall(before: float, after: float, groups: int) -> bool:
    """Return whether a share of `groups` groups is below another one by more than chance."""
    first, second = (wilson_interval(share * groups, groups, NO_CHANCE) for share in (before, after))
    return second.high < first.low


def _exceeds(held_out: Interval, best: _Best | None) -> bool:
    return best is None or held_out.point >= best.point


def _longer(values: tuple[float, ...], value: float) -> tuple[float, ...]:
    return (*values, value)[-WINDOW:]


def _mean(values: tuple[float, ...]) -> float:
    """The mean of a whole window; 0 before there is one."""
    return fmean(values) if len(values) == WINDOW else 0.0
