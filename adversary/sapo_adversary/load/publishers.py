"""The publishers' process: hosts with keys of their own, each connected with the target alone, and one that listens.

Told on standard input by lines of JSON: `{"join": user}` and
`{"publish": user, "kind": kind, "bytes": size, "ref": ref, "due": seconds of time.monotonic}`.
Tells on standard output: `{"ready": true}`, `{"joined": user, "welcome": whether}`, and of each message one of

- `{"ref": ref, "seconds": s}`: from when it was due until it came through the target's ingest to the listener,
- `{"ref": ref, "lost": why}`: it was sent, and did not come,
- `{"ref": ref, "unsent": why}`.

Each user has a queue of its own: a link from which the target does not read holds up the messages of its user alone.

A node passes on what its ingest accepts, and nothing else: so any node can be measured, without a look into it.
"""

import hashlib
import json
import math
import os
import random
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX

from sapo_adversary.attacks.gossip.peer import Hear, Link, LinkLost, running
from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.load.keys import identity_of, seed_of
from sapo_adversary.load.messages import VALID, Messages
from sapo_adversary.scoring import SharedScorer
from sapo_protocol import Assignment, epoch_at, evidence_topic, load_manifest, rollouts_topics, topic_of

if TYPE_CHECKING:
    from trio_typing import TaskStatus

LISTENER = -1
"""Number of the host that only listens."""
LOST_SECONDS, REFUSED_SECONDS = 15.0, 5.0
"""Seconds after which a message counts as lost, and a bad one as refused."""
_BEAT_SECONDS = 1.0
_BACK_OFF_SECONDS = 60
"""The back-off of a PRUNE that names none."""


@dataclass(frozen=True, slots=True)
class _User:
    """One publisher."""

    key: Key
    link: Link
    queue: trio.MemorySendChannel[bytes]
    """The hashes of its messages that are still to be sent."""


@dataclass(slots=True)
class _Message:
    """One message on its way."""

    ref: int
    due: float
    patience: float
    """Seconds after `due` for which it is waited for."""
    signed: Any
    sent: bool = False


class Publishers:
    """All hosts of one process."""

    def __init__(self, target: str, swarm: str, words: str) -> None:
        """`target` is the full address of a node; the keys are derived from `words`."""
        self._target = target
        self._words = words
        self._manifest = load_manifest(swarm)
        rng = random.Random(words)  # noqa: S311 - no secret hangs on it
        scorer = SharedScorer()
        for spec in self._manifest.tasks:  # the first task of each takes seconds, which are not the target's
            scorer.solve(Assignment(spec, 0))
        self._messages = Messages(self._manifest, Kit(self._manifest, [], scorer.solve, rng), time.time())
        self._users: dict[int, _User] = {}
        self._waiting: dict[bytes, _Message] = {}
        """The messages on their way, by the hash of their data."""
        self._graft_at: dict[str, float] = {}
        """By topic: when the listener asks next to join the target's mesh; never, while it is in."""
        self._over = False
        self._target_left = False

    async def run(self, told: trio.abc.ReceiveStream) -> None:
        """Serve until the input ends and no message is under way. If the target leaves before, exit with one line."""
        async with trio.open_nursery() as hosts:
            listener = await hosts.start(self._connected, LISTENER, self._heard)
            if listener is None:
                return
            hosts.start_soon(self._listen, hosts, listener)
            say({"ready": True})
            async with trio.open_nursery() as sending:
                sending.start_soon(self._give_up)
                async for line in _lines(told):
                    if "join" in line:
                        hosts.start_soon(self._join, hosts, line["join"])
                    else:
                        self._publish(line)
                        await trio.lowlevel.checkpoint()
                self._over = True
            hosts.cancel_scope.cancel()
        if self._target_left:
            for message in self._waiting.values():
                _say_undelivered(message, lost="the target left", unsent="the target left")
            sys.exit("the target closed the connection on which it is listened to")

    async def _connected(self, number: int, hear: Hear, *, task_status: "TaskStatus[Link | None]") -> None:
        """A host with its link to the target; without a link where the target refuses it."""
        async with running(seed_of(self._words, number), _place_of(number, self._target), hear) as peer:
            try:
                link = await peer.dial(self._target)
            except LinkLost:
                task_status.started(None)
                return
            task_status.started(link)
            await trio.sleep_forever()

    async def _listen(self, hosts: trio.Nursery, link: Link) -> None:
        """Join the target's mesh to measure delivery, and join again when a back-off ends. End all where it leaves."""
        with suppress(LinkLost):
            for topic in rollouts_topics(self._manifest):
                await link.subscribe(topic)
                self._graft_at[topic] = 0.0
            while link.open:
                for topic in [topic for topic, at in self._graft_at.items() if at <= trio.current_time()]:
                    self._graft_at[topic] = math.inf
                    await link.graft(topic)
                await trio.sleep(_BEAT_SECONDS)
        self._target_left = True
        hosts.cancel_scope.cancel()

    async def _join(self, hosts: trio.Nursery, user: int) -> None:
        link = await hosts.start(self._connected, user, _deaf)
        if link:
            with suppress(LinkLost):  # a node closes idle connections; the topic of evidence is nearly silent
                await link.subscribe(evidence_topic(self._manifest))
            identity = identity_of(self._words, user)
            queue, hashes = trio.open_memory_channel[bytes](math.inf)
            self._users[user] = _User(Key(identity.public_key, identity.sign), link, queue)
            hosts.start_soon(self._send, link, hashes)
        say({"joined": user, "welcome": link is not None})

    def _publish(self, line: Mapping[str, Any]) -> None:
        user, ref, now = self._users[line["publish"]], line["ref"], time.time()
        try:
            data = self._messages.make(line["kind"], user.key, now, line["bytes"])
        except ValueError as error:
            say({"ref": ref, "unsent": str(error)})
            return
        topic = topic_of(self._manifest, user.key.issuer, epoch_at(self._manifest, now))
        patience = LOST_SECONDS if line["kind"] in VALID else REFUSED_SECONDS
        digest = hashlib.sha256(data).digest()
        self._waiting[digest] = _Message(ref, line["due"], patience, signed(user.link.peer.keys, topic, data))
        user.queue.send_nowait(digest)

    async def _send(self, link: Link, hashes: trio.MemoryReceiveChannel[bytes]) -> None:
        """Send the messages of one user, in their order, without those that have waited for too long."""
        async for digest in hashes:
            if message := self._waiting.get(digest):
                try:
                    await link.publish(message.signed)
                except LinkLost:
                    if self._waiting.pop(digest, None):
                        say({"ref": message.ref, "unsent": "the target closed the connection"})
                message.sent = True

    async def _heard(self, _sender: str, rpc: Any) -> None:
        for message in rpc.publish:
            if found := self._waiting.pop(hashlib.sha256(message.data).digest(), None):
                say({"ref": found.ref, "seconds": time.monotonic() - found.due})
        for prune in rpc.control.prune:  # each GRAFT within a back-off is charged
            self._graft_at[prune.topicID] = trio.current_time() + (prune.backoff or _BACK_OFF_SECONDS) + _BEAT_SECONDS

    async def _give_up(self) -> None:
        """Count lost messages, until the last one has been sent and none is under way."""
        while self._waiting or not self._over:
            await trio.sleep(_BEAT_SECONDS)
            for digest, message in list(self._waiting.items()):
                if message.due + message.patience < time.monotonic():
                    del self._waiting[digest]
                    _say_undelivered(
                        message,
                        lost=f"not passed on within {message.patience:g} s",
                        unsent=f"the target took nothing for {message.patience:g} s",
                    )


async def _deaf(_sender: str, _rpc: Any) -> None:
    """Ignore what the target sends."""


def _place_of(user: int, target: str) -> tuple[str, int]:
    """The address and port of a host: on loopback its own address, as if each host were another machine."""
    number = user + 1
    return (f"127.{100 + number % 100}.7.{1 + number // 100}" if "/127." in target else "0.0.0.0"), 0  # noqa: S104


def signed(keys: Any, topic: str, data: bytes) -> Any:
    """A gossip message of its author, with the signature that strict signing requires."""
    message = rpc_pb2.Message(
        from_id=ID.from_pubkey(keys.public_key).to_bytes(),
        data=data,
        topicIDs=[topic],
        seqno=time.time_ns().to_bytes(8),
    )
    message.signature = keys.private_key.sign(PUBSUB_SIGNING_PREFIX.encode() + message.SerializeToString())
    return message


async def _lines(stream: trio.abc.ReceiveStream) -> Any:
    rest = b""
    async for data in stream:
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield json.loads(line)


def say(event: Mapping[str, Any]) -> None:
    """Print one event as a line."""
    os.write(sys.stdout.fileno(), json.dumps(event).encode() + b"\n")


def _say_undelivered(message: _Message, *, lost: str, unsent: str) -> None:
    """Say why a message did not come: `lost` if it was sent, else `unsent`."""
    say({"ref": message.ref, "lost": lost} if message.sent else {"ref": message.ref, "unsent": unsent})


async def _main(target: str, swarm: str, words: str) -> None:
    async with trio.lowlevel.FdStream(os.dup(0)) as told:
        await Publishers(target, swarm, words).run(told)


if __name__ == "__main__":
    trio.run(_main, *sys.argv[1:])
