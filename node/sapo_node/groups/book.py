"""The book of groups: one table of groups with a state, one table of rollouts that wait, and the only writer of both.

Each call moves a rollout or a group on:

    arrive         a rollout waits for verification
    draw           one turn of verification takes groups of a waiting rollout, by `lottery`
    judge          a group was verified and is on offer, or it is left out
    commit, enter  a group of a peer, or of this node, is in the batch of a step
    report         the step trained on the group, or left it out
    take_back      the weights no longer hold the group
    leave_out      the group is no longer on offer

Everything else is a query: `offered` is what a round draws from, and `entries` is what people and scripts see. What
became of a group is true in the moment in which it is told, because one transaction stores a batch and moves its
groups on.

What peers send is bounded before it is verified by places (`lottery`), and on offer by groups and bytes, of each peer
and of all. A full offer drops what arrived first, whatever epoch and counter its issuer chose. Groups of strangers go
before those of peers with evidence, and these before those of friends: a stranger's keys are free. A group that is on
offer no more stays for people who look while it is one of the newest, and as long as a stored batch needs its texts.
"""

import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.levels import Levels
from sapo_node.groups.lottery import ENDED_LINK, Lottery, places_of
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import (
    LOCAL,
    Entry,
    GroupKey,
    LocalGroup,
    NotDrawn,
    Outcome,
    State,
    Unusable,
    VerifiedGroup,
)
from sapo_node.groups.wire import WIRE, Wire
from sapo_node.storage.database import Database
from sapo_node.trust.constants import Tier
from sapo_node.trust.limits import LIMITS, Limits
from sapo_protocol import Manifest, Rollout, Sealed, encode_message, peer_id

SCHEMA = """
CREATE TABLE IF NOT EXISTS arrived (
    envelope_id BLOB PRIMARY KEY, peer TEXT NOT NULL, epoch INTEGER NOT NULL, message BLOB NOT NULL,
    groups INTEGER NOT NULL, -- those that wait: bit k for group k
    link TEXT NOT NULL, tier TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS arrived_peer ON arrived (peer);
CREATE TABLE IF NOT EXISTS groups (
    number INTEGER PRIMARY KEY, peer TEXT NOT NULL, epoch INTEGER NOT NULL, counter INTEGER NOT NULL,
    k INTEGER NOT NULL, envelope_id TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL, step INTEGER,
    at REAL NOT NULL, dataset TEXT NOT NULL, prompt TEXT NOT NULL, levels TEXT NOT NULL,
    top INTEGER NOT NULL, -- L of its task
    completions TEXT, -- null where the texts are not kept
    outcome TEXT, -- null before the step
    needed INTEGER NOT NULL, -- the newest step whose stored batch needs the texts; 0 for none
    envelope BLOB, body BLOB -- as the issuer signed them, for `rollouts export`
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS groups_of_peers ON groups (peer, epoch, counter, k) WHERE peer != '';
CREATE INDEX IF NOT EXISTS groups_of_this_node ON groups (epoch, counter, k) WHERE peer = '';
CREATE INDEX IF NOT EXISTS groups_on_offer ON groups (peer, epoch, counter, k) WHERE state = 'verified';
CREATE INDEX IF NOT EXISTS groups_of_envelope ON groups (envelope_id);
CREATE INDEX IF NOT EXISTS groups_by_state ON groups (state, number);
CREATE INDEX IF NOT EXISTS groups_needed ON groups (needed) WHERE needed > 0;
CREATE INDEX IF NOT EXISTS groups_not_signed ON groups (number) WHERE envelope IS NULL;
CREATE TABLE IF NOT EXISTS refusals (
    number INTEGER PRIMARY KEY, envelope_id TEXT NOT NULL, sender TEXT NOT NULL, issuer TEXT NOT NULL,
    why TEXT NOT NULL, at REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS refusals_id ON refusals (envelope_id);
"""

MAX_GROUPS, MAX_BYTES = 1_024, 2**26
"""On offer, of all peers. Bytes are those of completions as they are stored, in JSON."""
MAX_PER_PEER, MAX_BYTES_PER_PEER = 64, 2**22
"""On offer, of one peer."""
KEPT_GROUPS, KEPT_BYTES = 2_000, 2**24
"""The newest groups that are no longer on offer."""
KEPT_REFUSALS = 5_000

_GIVES_WAY = (Tier.STRANGER, Tier.PROVEN, Tier.FRIEND)
"""The tiers in the order in which they give way."""
_SIZE = "(coalesce(length(completions), 0) + coalesce(length(envelope), 0) + coalesce(length(body), 0))"
"""Bytes of the texts of a group. JSON in ASCII has as many characters as bytes."""
_READ_ROWS = 256
_UNSCORED = Levels()
_ON_OFFER = f"state = '{State.VERIFIED}'"
_OF_KEY = "peer = ? AND peer != '' AND epoch = ? AND counter = ? AND k = ?"
"""SQLite uses a partial index only where the query has its condition in words."""


Bodies = tuple[bytes | None, ...]
"""By k; None for one that is not here."""


def together(envelope: bytes, new: Bodies, earlier: Bodies, *, most: int) -> Bodies:
    """Return the new bodies and the earlier ones, or the new ones alone if a message of all has more than `most` bytes.

    Each message was short enough, but all their bodies together need not be. No honest node could have sent them: it
    sends all bodies in one message.
    """
    merged = tuple(each or before for each, before in zip(new, earlier, strict=True))
    return merged if len(encode_message(envelope, merged)) <= most else new


@dataclass(frozen=True, slots=True)
class Turn:
    """The groups of a rollout that one turn verifies, by k. The bodies of some of them may be missing."""

    rollout: Rollout
    groups: tuple[int, ...]
    spared: frozenset[int] = frozenset()
    """Groups of these that are not worth their bodies (`Verifier.spare`)."""

    @property
    def missing(self) -> int:
        """The groups whose bodies are needed and missing: bit k for group k."""
        return sum(1 << k for k in self.groups if self.rollout.bodies[k] is None and k not in self.spared)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One message that was not taken."""

    envelope_id: str
    """Hexadecimal; empty if there was no envelope to name."""
    sender: str
    issuer: str
    why: str
    at: float


class Book:
    """The rollouts that wait and the groups that were judged, of all peers and of this node."""

    def __init__(
        self,
        database: Database,
        manifest: Manifest,
        *,
        rng: random.Random,
        tier: Callable[[str], Tier] = lambda _: Tier.STRANGER,
        signed_bytes: int = 0,
        now: Callable[[], float] = time.time,
        limits: Limits = LIMITS,
        wire: Wire = WIRE,
    ) -> None:
        """`tier(peer id)` is the tier of a peer now. Above 0, `signed_bytes` is how much is kept of the groups of
        peers with what their issuers signed; at 0 the signed bytes are not kept. `now` gives the Unix time.
        """
        self._database = database
        self._manifest = manifest
        self._rng = rng
        self._tier = tier
        self._keeps_signed = signed_bytes > 0
        self._kept_bytes = max(signed_bytes, KEPT_BYTES)
        self._now = now
        self._limits = limits
        self._wire = wire
        self.lottery = Lottery(rng, limits)
        self.left_out: Counter[str] = Counter()
        """Verified groups that the node did not train on, by reason, since this process began."""
        self._offered: dict[GroupKey, VerifiedGroup] = {}
        """Cache of the groups on offer: most of them wait for many rounds."""
        self._passed: dict[GroupKey, str] = {}
        """The reason for which each of them was not drawn in the last round."""
        self._refused: deque[tuple[str, tuple[bytes, bytes] | None, str, float]] = deque(maxlen=KEPT_REFUSALS)
        self._has_changed = False
        """True if groups were written since `flush`."""
        on_offer = database.rows(
            f"SELECT peer, count(*), sum({_SIZE}) FROM groups WHERE {_ON_OFFER} GROUP BY peer"  # noqa: S608 - ours
        )
        self._held: Counter[str] = Counter({peer: groups for peer, groups, _ in on_offer})
        self._bytes: Counter[str] = Counter({peer: size for peer, _, size in on_offer})
        [(self._stored_bytes,)] = database.rows(
            f"SELECT coalesce(sum({_SIZE}), 0) FROM groups WHERE completions IS NOT NULL"  # noqa: S608 - ours
        )
        database.execute("UPDATE arrived SET link = ?", ENDED_LINK)
        self._count_places()

    # Rollouts that wait for verification.

    @property
    def waiting(self) -> int:
        """Rollouts that wait."""
        return int(self._database.rows("SELECT count(*) FROM arrived")[0][0])

    def arrive(self, rollout: Rollout, *, link: str, tier: Tier, groups: int | None = None) -> None:
        """Add a rollout that is charged to a link (a peer id), or groups and bodies to one that still waits; make room
        where there is none. `groups` are to be verified, bit k for group k; None for all.
        """
        peer, envelope_id, bodies = peer_id(rollout.opened.issuer), rollout.opened.envelope_id, rollout.bodies
        envelope = rollout.opened.envelope
        if groups is None:
            groups = (1 << len(bodies)) - 1
        if waiting := self._take("envelope_id = ?", envelope_id):
            earlier, others = waiting
            groups |= others
            bodies = together(envelope, bodies, self._open(earlier).bodies, most=self._manifest.max_message_bytes)
        message = encode_message(envelope, bodies)
        places = places_of(len(message))
        while self.lottery.is_peer_full(peer, places):
            self._take("peer = ? ORDER BY rowid", peer)
        while self.lottery.is_tier_full(tier, places):
            fullest, issuer = self.lottery.gives_way(tier)
            self._take("peer = ? AND link = ? AND tier = ? ORDER BY rowid", issuer, fullest, tier)
        self._database.execute(
            "INSERT INTO arrived (envelope_id, peer, epoch, message, groups, link, tier) VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(envelope_id, peer, rollout.header.epoch, message, groups, link, tier),
        )
        self.lottery.change(tier, link, peer, places)

    def draw(self, tier: Tier, *, last: Callable[[str], bool] = lambda _: False) -> Turn | None:
        """Take out what one turn verifies of a tier; None when nothing waits in it.

        The lottery draws the issuer, of which the rollout that arrived last is taken: what is trained on is what its
        policy does by now. A turn takes at most TURN_GROUPS groups, chosen at random. The others wait for another turn.
        Else a link whose rollouts have sixteen groups would have four times as many groups as one whose have four.
        `last` is that of `Lottery.draw`.
        """
        drawn = self.lottery.draw(tier, last=last)
        if drawn is None:
            return None
        link, peer = drawn
        found = self._take("peer = ? AND link = ? AND tier = ? ORDER BY rowid DESC", peer, link, tier)
        if found is None:
            return None
        message, waiting = found
        rollout = self._open(message)
        groups = [k for k in range(len(rollout.bodies)) if waiting >> k & 1]
        if len(groups) <= self._limits.turn_groups:
            return Turn(rollout, tuple(groups))
        taken = sorted(self._rng.sample(groups, self._limits.turn_groups))
        rest = tuple(None if k in taken else body for k, body in enumerate(rollout.bodies))
        others = sum(1 << k for k in groups if k not in taken)
        self.arrive(replace(rollout, bodies=rest), link=link, tier=tier, groups=others)
        bodies = tuple(body if k in taken else None for k, body in enumerate(rollout.bodies))
        return Turn(replace(rollout, bodies=bodies), tuple(taken))

    def begin_link(self, link: str, block: str) -> None:
        """Note the address block of a peer that has connected; empty if the peer shares turns with no other."""
        self.lottery.begin_link(link, block)

    def end_link(self, link: str) -> None:
        """Note that a peer has disconnected: its rollouts wait with those of other ended links."""
        self.lottery.end_link(link)
        if self.lottery.holds(link):
            moved = "UPDATE arrived SET link = ? WHERE link = ? RETURNING tier, peer, length(message)"
            for tier, peer, size in self._database.rows(moved, ENDED_LINK, link):
                self.lottery.change(tier, link, peer, -places_of(size))
                self.lottery.change(tier, ENDED_LINK, peer, places_of(size))

    def _open(self, message: bytes) -> Rollout:
        """Stored bytes go through the same decoders as received ones, so a damaged row cannot become a rollout."""
        with self._database.decoding():
            return self._wire.open_message(message, self._manifest)

    def _take(self, order: str, *values: Any) -> tuple[bytes, int] | None:
        """Take out the first waiting rollout in an order; its message, and its waiting groups as bits by k."""
        taken = self._database.row(
            f"DELETE FROM arrived WHERE rowid IN (SELECT rowid FROM arrived WHERE {order} LIMIT 1) "  # noqa: S608 - ours
            "RETURNING tier, link, peer, message, groups",
            *values,
        )
        if taken is None:
            return None
        tier, link, peer, message, groups = taken
        self.lottery.change(tier, link, peer, -places_of(len(message)))
        return message, groups

    def _count_places(self) -> None:
        self.lottery.clear()
        for tier, link, peer, size in self._database.rows("SELECT tier, link, peer, length(message) FROM arrived"):
            self.lottery.change(tier, link, peer, places_of(size))

    # Groups that were judged.

    def judge(self, rollout: Rollout, found: Mapping[int, VerifiedGroup | Unusable]) -> None:
        """Enter what verification found of groups of a rollout, by k. Groups that arrived first make room."""
        envelope_id = rollout.opened.envelope_id.hex()
        with self._database.transaction():
            for k, finding in found.items():
                if isinstance(finding, VerifiedGroup):
                    signed = (rollout.opened.envelope, rollout.bodies[k]) if self._keeps_signed else (None, None)
                    self.offer(finding, envelope_id, signed=signed)
                else:
                    key = (peer_id(rollout.opened.issuer), rollout.header.epoch, rollout.header.counter, k)
                    self._insert(key, envelope_id, State.LEFT_OUT, why=finding)
            if self._is_full():
                self._trim()

    def offer(
        self, group: VerifiedGroup, envelope_id: str = "", *, signed: tuple[bytes | None, bytes | None] = (None, None)
    ) -> None:
        """Put a verified group on offer, unless the book knows it. The peer's groups that arrived first make room. A
        group whose body was missing before is entered anew.
        """
        completions = json.dumps(to_json(group.completions))
        envelope, body = signed
        with self._database.transaction():
            added = self._insert(
                group.key,
                envelope_id,
                State.VERIFIED,
                dataset=group.dataset,
                prompt=group.prompt,
                levels=group.levels,
                completions=completions,
                envelope=envelope,
                body=body,
            )
            if not added:
                return
            size = len(completions) + len(envelope or b"") + len(body or b"")
            self._offered[group.key] = group
            self._held[group.peer] += 1
            self._bytes[group.peer] += size
            self._stored_bytes += size
            while self._has_too_much(group.peer) and self._drop_first(group.peer):
                pass

    def offered(self) -> list[VerifiedGroup]:
        """All groups on offer, in a stable order."""
        keys = self._database.rows(
            f"SELECT peer, epoch, counter, k FROM groups WHERE {_ON_OFFER} ORDER BY peer, epoch, counter, k"  # noqa: S608 - ours
        )
        self._offered = {key: self._offered.get(key) or self._read(key) for key in keys}
        return list(self._offered.values())

    def per_peer(self) -> dict[str, int]:
        """Return the number of groups on offer by peer."""
        return dict(self._held)

    def leave_out(self, group: VerifiedGroup, why: str) -> None:
        """Take a group from the offer."""
        self._drop(why, _OF_KEY, *group.key)

    def pass_over(self, groups: Iterable[tuple[VerifiedGroup, str]]) -> None:
        """A round did not draw these groups, each for a reason, and they stay on offer."""
        before, self._passed = self._passed, {}
        with self._database.transaction():
            for group, why in groups:
                self._passed[group.key] = why
                if before.get(group.key) != why:
                    self._database.execute(
                        f"UPDATE groups SET why = ? WHERE {_ON_OFFER} AND {_OF_KEY}",  # noqa: S608 - ours
                        *(why, *group.key),
                    )

    def advance(self, epoch: int) -> None:
        """Enter an epoch: drop what is too old to be trained on, of rollouts that wait and of groups on offer."""
        oldest = epoch - self._limits.max_age
        with self._database.transaction():
            if self._database.execute("DELETE FROM arrived WHERE epoch < ?", oldest):
                self._count_places()
            self._drop(NotDrawn.TOO_OLD, "epoch < ?", oldest)

    def forget(self, peer: str) -> None:
        """Drop the waiting rollouts and the groups on offer of a peer that was banned."""
        with self._database.transaction():
            gone = "DELETE FROM arrived WHERE peer = ? RETURNING tier, link, length(message)"
            for tier, link, size in self._database.rows(gone, peer):
                self.lottery.change(tier, link, peer, -places_of(size))
            if self._held[peer]:
                self._drop(NotDrawn.BANNED, "peer = ?", peer)

    def _insert(
        self,
        key: GroupKey,
        envelope_id: str,
        state: State,
        *,
        why: str = "",
        dataset: str = "",
        prompt: str = "",
        levels: Levels = _UNSCORED,
        completions: str | None = None,
        envelope: bytes | None = None,
        body: bytes | None = None,
    ) -> bool:
        """Enter a group of a peer; whether it is new."""
        self._has_changed = True
        return bool(
            self._database.execute(
                "INSERT INTO groups (peer, epoch, counter, k, envelope_id, state, why, at, dataset, prompt, levels, "
                "top, completions, envelope, body, needed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0) "
                "ON CONFLICT (peer, epoch, counter, k) WHERE peer != '' DO UPDATE SET "
                "envelope_id = excluded.envelope_id, state = excluded.state, why = excluded.why, at = excluded.at, "
                "dataset = excluded.dataset, prompt = excluded.prompt, levels = excluded.levels, "
                "top = excluded.top, "
                "completions = excluded.completions, envelope = excluded.envelope, body = excluded.body WHERE why = ?",
                *(*key, envelope_id, state, why, self._now(), dataset, prompt),
                *(json.dumps(levels.each), levels.top, completions, envelope, body, Unusable.NO_BODY),
            )
        )

    def _read(self, key: GroupKey) -> VerifiedGroup:
        [(dataset, prompt, completions, levels, top)] = self._database.rows(
            f"SELECT dataset, prompt, completions, levels, top FROM groups WHERE {_OF_KEY}",  # noqa: S608 - ours
            *key,
        )
        with self._database.decoding():
            return VerifiedGroup(*key, dataset, prompt, *_scored(completions, levels, top))

    def _has_too_much(self, peer: str) -> bool:
        return self._held[peer] > MAX_PER_PEER or self._bytes[peer] > MAX_BYTES_PER_PEER

    def _is_full(self) -> bool:
        return self._held.total() > MAX_GROUPS or self._bytes.total() > MAX_BYTES

    def _trim(self) -> None:
        """Drop what is on offer beyond MAX_GROUPS and MAX_BYTES."""
        arrived = self._database.rows(f"SELECT peer FROM groups WHERE {_ON_OFFER} ORDER BY number")  # noqa: S608 - ours
        arrived.sort(key=lambda row: _GIVES_WAY.index(self._tier(row[0])))
        for (peer,) in arrived:
            if not self._is_full():
                break
            self._drop_first(peer)

    def _drop_first(self, peer: str) -> int:
        """Drop the group of a peer that arrived first; how many groups that are."""
        first = f"number = (SELECT min(number) FROM groups WHERE {_ON_OFFER} AND peer = ?)"  # noqa: S608 - ours
        return self._drop(NotDrawn.MADE_ROOM, first, peer)

    def _drop(self, why: str, condition: str, *values: object) -> int:
        """Leave out the groups on offer that meet a condition; their number."""
        gone = self._withdraw(State.LEFT_OUT, why, None, condition, *values)
        self.left_out[why] += gone
        return gone

    def _withdraw(self, state: State, why: str, step: int | None, condition: str, *values: object) -> int:
        """Groups on offer that meet a condition change their state; their number."""
        gone = self._database.rows(
            f"UPDATE groups SET state = ?, why = ?, step = ?, at = ? WHERE {_ON_OFFER} AND {condition} "  # noqa: S608 - ours
            f"RETURNING peer, epoch, counter, k, {_SIZE}",
            *(state, why, step, self._now(), *values),
        )
        for *key, size in gone:
            self._offered.pop((key[0], key[1], key[2], key[3]), None)
            self._held[key[0]] -= 1
            self._bytes[key[0]] -= size
            if not self._held[key[0]]:
                del self._held[key[0]], self._bytes[key[0]]
        self._has_changed |= bool(gone)
        return len(gone)

    # Groups of a batch. The caller is in the transaction that stores or counts the batch.

    def enter(self, step: int, group: LocalGroup) -> int:
        """A group of this node is in the batch of a step; its number."""
        self._has_changed = True
        completions = json.dumps(to_json(group.completions))
        [(number,)] = self._database.rows(
            "INSERT INTO groups (peer, epoch, counter, k, envelope_id, state, why, step, at, dataset, prompt, levels, "
            "top, completions, needed) VALUES (?, ?, ?, ?, '', ?, '', ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
            *(*group.key, State.OWN, step, self._now(), group.dataset, group.prompt),
            *(json.dumps(group.levels.each), group.levels.top, completions, step),
        )
        self._stored_bytes += len(completions)
        return int(number)

    def enter_again(self, step: int, group: LocalGroup) -> int:
        """A group of this node from an earlier round is in the batch of a step, too, with its correct completions
        alone; its number.
        """
        row = self._database.row(
            "UPDATE groups SET needed = ? WHERE number = (SELECT max(number) FROM groups WHERE peer = '' AND epoch = ? "
            "AND counter = ? AND k = ?) RETURNING number",
            *(step, group.epoch, group.counter, group.k),
        )
        return int(row[0]) if row else self.enter(step, group)

    def commit(self, step: int, group: VerifiedGroup, *, stands_in: bool = False) -> int:
        """A group of a peer is in the batch of a step; its number. A group that only stands in stays on offer."""
        needed = f"UPDATE groups SET needed = ? WHERE {_OF_KEY} RETURNING number"  # noqa: S608 - ours
        row = self._database.row(needed, step, *group.key)
        if row is None:  # the book has forgotten it since it was drawn
            self.offer(group)
            [row] = self._database.rows(needed, step, *group.key)
        if not stands_in:
            self._withdraw(State.DRAWN, "", step, _OF_KEY, *group.key)
        return int(row[0])

    def report(self, step: int, number: int, why: str, outcome: Outcome) -> None:
        """A step has trained on a group, or left it out with the reason `why`. Each replay of the step reports anew."""
        row = self._database.row("SELECT peer, state FROM groups WHERE number = ?", number)
        if row is None:
            return
        peer, state = row
        becomes = State.OWN if peer == LOCAL else State.LEFT_OUT if why else State.TRAINED
        if state == State.VERIFIED:
            self._withdraw(State.DRAWN, "", step, "number = ?", number)
        if why and peer != LOCAL and state in (State.VERIFIED, State.DRAWN):
            self.left_out[why] += 1
        in_weights = None if becomes is State.LEFT_OUT else step
        self._database.execute(
            "UPDATE groups SET state = ?, why = ?, step = ?, outcome = ?, at = ? WHERE number = ?",
            *(becomes, why, in_weights, json.dumps(to_json(outcome)), self._now(), number),
        )

    def take_back(self, numbers: Collection[int], why: str, *, counted: str) -> None:
        """The weights no longer hold these groups, for the reason `why`, which is counted as `counted`."""
        for number in numbers:
            self._database.execute(
                "UPDATE groups SET state = ?, why = ?, step = NULL, at = ? WHERE number = ?",
                *(State.LEFT_OUT, why, self._now(), number),
            )
        self.left_out[counted] += len(numbers)

    def release(self, step: int) -> None:
        """No batch up to this step is stored any more, so none needs the texts of its groups."""
        self._database.execute("UPDATE groups SET needed = 0 WHERE needed BETWEEN 1 AND ?", step)

    # What people and scripts see.

    def refused(self, sender: str, sealed: Sealed | None, why: str) -> None:
        """Note a message that was not taken; `sealed` is its envelope, if it has one. `flush` writes it: a flood must
        stay cheap.
        """
        named = (sealed.envelope_id, sealed.issuer) if sealed else None
        self._refused.append((sender, named, why, self._now()))

    def flush(self) -> None:
        """Write what was refused since the last time, and drop the texts, the groups and the refusals that are no
        longer kept: a node calls this after each round, and every second where it plays none.
        """
        if not self._refused and not self._has_changed:
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
            self._forget_oldest()
        self._refused.clear()
        self._has_changed = False

    def _forget_oldest(self) -> None:
        """Delete the oldest groups beyond what is kept, that are neither on offer nor in a stored batch."""
        self._delete("number <= (SELECT max(number) FROM groups) - ? AND envelope IS NULL", KEPT_GROUPS)
        while self._stored_bytes - self._bytes.total() > self._kept_bytes:
            if not self._delete(f"number = (SELECT min(number) FROM groups WHERE NOT {_ON_OFFER} AND needed = 0)"):  # noqa: S608 - ours
                return

    def _delete(self, condition: str, *values: object) -> int:
        gone = self._database.rows(
            f"DELETE FROM groups WHERE {condition} AND NOT {_ON_OFFER} AND needed = 0 RETURNING {_SIZE}",  # noqa: S608 - ours
            *values,
        )
        self._stored_bytes -= sum(size for (size,) in gone)
        return len(gone)


def newest(database: Database, last: int, state: State | None = None) -> list[Entry]:
    """The newest groups, or the newest of one state; newest first."""
    if state is None:
        return _entries(database, "ORDER BY number DESC LIMIT ?", last)
    return _entries(database, "WHERE state = ? ORDER BY number DESC LIMIT ?", state, last)


def counts(database: Database) -> dict[str, int]:
    """Return the number of groups in the book by state."""
    return dict(database.rows("SELECT state, count(*) FROM groups GROUP BY state"))


def of_peer(database: Database, peer: str) -> list[Entry]:
    """The newest groups of a peer, newest first."""
    return _entries(database, "WHERE peer = ? AND peer != '' ORDER BY number DESC LIMIT ?", peer, KEPT_GROUPS)


def local_round(database: Database, epoch: int, counter: int) -> list[Entry]:
    """The groups of one round of this node, by k."""
    return _entries(database, "WHERE peer = '' AND epoch = ? AND counter = ? ORDER BY k", epoch, counter)


def of_envelope(database: Database, envelope_id: str) -> list[Entry]:
    """The groups of an envelope whose id begins so, by k."""
    return _entries(database, "WHERE envelope_id LIKE ? || '%' ORDER BY epoch, counter, k", envelope_id)


def waiting_of(database: Database, envelope_id: str) -> list[str]:
    """The ids, in hexadecimal, of the envelopes that wait for verification and whose id begins so."""
    asked = "SELECT lower(hex(envelope_id)) FROM arrived WHERE lower(hex(envelope_id)) LIKE ? || '%'"
    return [found for (found,) in database.rows(asked, envelope_id)]


def by_number(database: Database, number: int) -> Entry | None:
    """The group of a number; None if the book no longer has it."""
    return next(iter(_entries(database, "WHERE number = ?", number)), None)


def refusals(database: Database, last: int, *, envelope_id: str = "") -> list[Refusal]:
    """The newest refusals, newest first, of envelopes whose id begins so."""
    rows = database.rows(
        "SELECT envelope_id, sender, issuer, why, at FROM refusals WHERE envelope_id LIKE ? || '%' "
        "ORDER BY number DESC LIMIT ?",
        *(envelope_id, last),
    )
    return [Refusal(*row) for row in rows]


def signed(database: Database) -> Iterator[tuple[Entry, bytes, bytes]]:
    """The groups of peers that are kept with envelope and body, as their issuers signed them; oldest first."""
    last = 0
    while rows := database.rows(
        "SELECT number, envelope, body FROM groups WHERE envelope IS NOT NULL AND number > ? ORDER BY number LIMIT ?",
        *(last, _READ_ROWS),
    ):
        for last, envelope, body in rows:
            if entry := by_number(database, last):
                yield entry, envelope, body


_COLUMNS = (
    *("number", "peer", "epoch", "counter", "k", "envelope_id", "state", "why", "step", "at", "dataset", "prompt"),
    *("completions", "levels", "top", "outcome"),
)


def _entries(database: Database, condition: str, *values: Any) -> list[Entry]:
    rows = database.rows(f"SELECT {', '.join(_COLUMNS)} FROM groups {condition}", *values)  # noqa: S608 - ours
    with database.decoding():
        return [_entry(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _entry(*, state: str, completions: str | None, levels: str, top: int, outcome: str | None, **plain: Any) -> Entry:
    """Raises an error of `Database.decoding`."""
    found, scored = _scored(completions, levels, top) if completions else ((), _levels(levels, top))
    return Entry(
        **plain,
        state=State(state),
        completions=found,
        levels=scored,
        outcome=from_json(Outcome, json.loads(outcome)) if outcome else None,
    )


def _scored(completions: str, levels: str, top: int) -> tuple[tuple[Sampled, ...], Levels]:
    """The completions of a row, with their levels. Raises an error of `Database.decoding`."""
    found, scored = from_json(tuple[Sampled, ...], json.loads(completions)), _levels(levels, top)
    if len(scored.each) != len(found):
        raise ValueError("a group has another number of levels than of completions")
    return found, scored


def _levels(levels: str, top: int) -> Levels:
    return from_json(Levels, {"each": json.loads(levels), "top": top})
