"""What became of every group and message, and why: facts as they happened, for people who ask.

`Fate` and the reasons of refusals are the vocabulary of the dashboard, of `sapo-node why` and of the counts. The
journal decides nothing: a node without one does the same.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from sapo_node.groups.messages import TrainReport, reason_of
from sapo_node.groups.types import GroupKey, VerifiedGroup
from sapo_node.observability import group_facts
from sapo_node.sampling.filters.habits import Span
from sapo_node.sampling.sampler import NotDrawn
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import StoredBatch, place_of
from sapo_node.training.round import Choices, left_out
from sapo_node.training.take_back import Accused, TakenBack
from sapo_node.verification.verifier import Unusable
from sapo_protocol import Rollout, Sealed, peer_id

SCHEMA = """
CREATE TABLE IF NOT EXISTS journal (
    number INTEGER PRIMARY KEY, peer TEXT NOT NULL, epoch INTEGER NOT NULL, counter INTEGER NOT NULL,
    k INTEGER NOT NULL, envelope_id TEXT NOT NULL, fate TEXT NOT NULL, why TEXT NOT NULL, step INTEGER,
    at REAL NOT NULL, facts TEXT NOT NULL, UNIQUE (peer, epoch, counter, k)
) STRICT;
CREATE INDEX IF NOT EXISTS journal_id ON journal (envelope_id);
CREATE TABLE IF NOT EXISTS refusals (
    number INTEGER PRIMARY KEY, envelope_id TEXT NOT NULL, sender TEXT NOT NULL, issuer TEXT NOT NULL,
    why TEXT NOT NULL, at REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS refusals_id ON refusals (envelope_id);
"""

KEPT_GROUPS = 2_000
KEPT_REFUSALS = 5_000
_ENTER = (
    "INSERT INTO journal (peer, epoch, counter, k, envelope_id, fate, why, step, at, facts) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO "
)
_UPDATE = (
    "UPDATE SET fate = excluded.fate, why = excluded.why, step = excluded.step, at = excluded.at, "
    "facts = excluded.facts"
)


class Fate(StrEnum):
    """What became of a group."""

    OWN = "own"
    """This node's, and in the batch; `why` says so where nothing of it was trained on."""
    WAITS = "waits"
    """Verified, and on offer."""
    TRAINED = "trained"
    LEFT_OUT = "left out"
    """For a reason of `Unusable` or `NotDrawn`, the learner or a filter, or because its steps were taken back."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One group, as it stands now."""

    number: int
    peer: str
    """Empty for this node's own."""
    epoch: int
    counter: int
    k: int
    envelope_id: str
    """Hexadecimal; empty for this node's own."""
    fate: Fate
    why: str
    step: int | None
    at: float
    """Unix time of the last change."""
    facts: dict[str, Any]
    """dataset, question, completions (text, reward, advantage, and of what was not taught: silent (phrases), filter
    and spans of the text), weight, tokens (trained on) and masked (tokens of correct completions): as far as
    they are known."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One message that was not taken."""

    envelope_id: str
    """Hexadecimal; empty where there was no envelope to name."""
    sender: str
    issuer: str
    why: str
    at: float


class Journal:
    """Written as the node runs, read by whoever looks."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now
        self._refused: deque[tuple[str, tuple[bytes, bytes] | None, str, float]] = deque(maxlen=KEPT_REFUSALS)
        self._is_longer = False
        """Whether groups were entered since `flush`."""

    def refused(self, sender: str, sealed: Sealed | None, why: str) -> None:
        """A message was not taken; `sealed` where it had an envelope. Only noted, since floods must stay cheap."""
        named = (sealed.envelope_id, sealed.issuer) if sealed else None
        self._refused.append((sender, named, why, self._now()))

    def flush(self) -> None:
        """Write what was refused since the last time, as much of it as is kept anyway. The oldest groups and refusals
        go: a node calls this after each round, and every second where it plays none.
        """
        if not self._refused and not self._is_longer:
            return
        with self._database.transaction():
            for sender, named, why, at in self._refused:
                envelope_id, issuer = (named[0].hex(), peer_id(named[1])) if named else ("", "")
                self._database.execute(
                    "INSERT INTO refusals (envelope_id, sender, issuer, why, at) VALUES (?, ?, ?, ?, ?)",
                    *(envelope_id, sender, issuer, why, at),
                )
            self._database.execute(
                "DELETE FROM refusals WHERE number <= (SELECT max(number) FROM refusals) - ?", KEPT_REFUSALS
            )
            self._database.execute(
                "DELETE FROM journal WHERE number <= (SELECT max(number) FROM journal) - ?", KEPT_GROUPS
            )
        self._refused.clear()
        self._is_longer = False

    def verified_or_unusable(self, rollout: Rollout, k: int, finding: VerifiedGroup | Unusable) -> None:
        """A group was verified, or could not be used."""
        header = rollout.header
        place = (peer_id(rollout.opened.issuer), header.epoch, header.counter, k)
        envelope_id = rollout.opened.envelope_id.hex()
        if isinstance(finding, VerifiedGroup):
            self._write(place, envelope_id, Fate.WAITS, facts=group_facts.of_verified(finding))
        else:
            # Bodies may come in several messages: what came with an earlier one is known already.
            only_new = finding is Unusable.NO_BODY
            self._write(place, envelope_id, Fate.LEFT_OUT, why=finding, facts={}, only_new=only_new)

    def chosen(self, choices: Choices) -> None:
        """A round has trained on some groups, and not on others."""
        with self._database.transaction():
            for k, own in enumerate(choices.local):
                place, why = ("", choices.epoch, choices.counter, k), choices.local_refused.get(k, "")
                self._write(place, "", Fate.OWN, why=why, step=choices.step, facts=group_facts.of_local(own))
            for trained in choices.external:
                became = _became(trained.left_out, choices.step)
                shown = json.dumps(group_facts.of_trained(trained))
                self._change(trained.weighted.group.place, "fate = ?, why = ?, step = ?, facts = ?", *became, shown)
            for group, filter_name in choices.stopped:
                self._change(group.place, "fate = ?, why = ?", Fate.LEFT_OUT, reason_of(filter_name))
            for group, passed in choices.not_drawn:
                self._change(group.place, "why = ?", passed)

    def replayed(self, batch: StoredBatch, report: TrainReport) -> None:
        """A stored batch was trained on: again, or after a crash that came before its round was `chosen`."""
        with self._database.transaction():
            for group in batch.request.groups:
                if place := place_of(group.id):
                    trained = report.groups[group.id]
                    became = _became(left_out(trained, trained.rejected), batch.request.step)
                    self._change(place, "fate = ?, why = ?, step = ?", *became)

    def dropped(self, places: Sequence[GroupKey], why: NotDrawn) -> None:
        """Verified groups are on offer no more."""
        with self._database.transaction():
            for place in places:
                self._change(place, "fate = ?, why = ?", Fate.LEFT_OUT, why)

    def taken_back(self, taken: TakenBack, accused: Accused) -> None:
        """Steps were taken back that had trained on these groups."""
        with self._database.transaction():
            for _, group in accused:
                if place := place_of(group):
                    self._change(place, "fate = ?, why = ?, step = ?", Fate.LEFT_OUT, taken.why, None)

    def groups(self, last: int, fate: Fate | None = None) -> list[Entry]:
        """The newest groups, or the newest of one fate; newest first."""
        return self._entries("WHERE fate = coalesce(?, fate) ORDER BY number DESC LIMIT ?", fate, last)

    def counts(self) -> dict[str, int]:
        """How many groups the journal holds, by fate."""
        return dict(self._database.rows("SELECT fate, count(*) FROM journal GROUP BY fate"))

    def of_peer(self, peer: str) -> list[Entry]:
        """The groups of a peer, newest first."""
        return self._entries("WHERE peer = ? ORDER BY number DESC", peer)

    def local_round(self, epoch: int, counter: int) -> list[Entry]:
        """The groups of one round of this node, by k."""
        return self._entries("WHERE peer = '' AND epoch = ? AND counter = ? ORDER BY k", epoch, counter)

    def masks(self, place: GroupKey) -> list[list[Span]]:
        """Of each completion of a group, which of its first SHOWN_CHARACTERS characters the filters masked.

        Empty where the node has not trained on the group, or where the group is too old for the journal.
        """
        row = self._database.row(
            "SELECT facts FROM journal WHERE peer = ? AND epoch = ? AND counter = ? AND k = ?", *place
        )
        shown = json.loads(row[0]).get("completions", []) if row else []
        return [[(begin, end) for begin, end in each.get("spans", [])] for each in shown]

    def of_envelope(self, envelope_id: str) -> list[Entry]:
        """The groups of an envelope whose id begins so, by k."""
        return self._entries("WHERE envelope_id LIKE ? || '%' ORDER BY epoch, counter, k", envelope_id)

    def refusals(self, last: int, *, envelope_id: str = "") -> list[Refusal]:
        """The newest refusals, newest first, of envelopes whose id begins so."""
        rows = self._database.rows(
            "SELECT envelope_id, sender, issuer, why, at FROM refusals WHERE envelope_id LIKE ? || '%' "
            "ORDER BY number DESC LIMIT ?",
            *(envelope_id, last),
        )
        return [Refusal(*row) for row in rows]

    def _change(self, place: GroupKey, columns: str, *values: Any) -> None:
        """Of what was entered when it was verified, unless that is too long ago."""
        self._database.execute(
            f"UPDATE journal SET at = ?, {columns} WHERE peer = ? AND epoch = ? AND counter = ? AND k = ?",  # noqa: S608 - ours
            *(self._now(), *values, *place),
        )

    def _write(
        self,
        place: GroupKey,
        envelope_id: str,
        fate: Fate,
        *,
        why: str = "",
        step: int | None = None,
        facts: dict[str, Any],
        only_new: bool = False,
    ) -> None:
        """Enter a group, or change its entry. With `only_new`, an entry that is there stays as it is."""
        self._is_longer = True
        self._database.execute(
            _ENTER + ("NOTHING" if only_new else _UPDATE),
            *(*place, envelope_id, fate, why, step, self._now(), json.dumps(facts)),
        )

    def _entries(self, condition: str, *values: Any) -> list[Entry]:
        names = [each.name for each in fields(Entry)]
        rows = self._database.rows(f"SELECT {', '.join(names)} FROM journal {condition}", *values)  # noqa: S608 - ours
        stored = (dict(zip(names, row, strict=True)) for row in rows)
        return [Entry(**{**row, "fate": Fate(row["fate"]), "facts": json.loads(row["facts"])}) for row in stored]


def _became(why_left_out: str, step: int) -> tuple[Fate, str, int | None]:
    """Fate, reason and step of a group of a batch; the reason is empty where something of the group was trained on."""
    return (Fate.LEFT_OUT, why_left_out, None) if why_left_out else (Fate.TRAINED, "", step)
