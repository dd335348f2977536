"""Attacks that cost a node messages, records, dials or streams."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING, Any

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.gossip.kit import (
    BEAT_SECONDS,
    GossipAttack,
    GossipKit,
    SilentSybils,
    Sybils,
    nowhere,
)
from sapo_adversary.attacks.kit import Key, Kit, Solution, peer_of
from sapo_protocol import Assignment, PeerAddress, PeersRequest, decode_request, encode_listing, encode_peers
from sapo_protocol.limits import MAX_PX_PEERS

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link, Peer

_ROUNDS = 100
"""Control messages of all kinds in a heartbeat, or as many as the honest node reads."""


class ControlSpam(SilentSybils):
    """Peers keep honest nodes busy with control messages.

    Each message costs a few bytes and is legal by itself: IHAVE and IWANT for messages that do not exist, GRAFT in
    back-off and for unknown topics, PRUNE and IDONTWANT.
    """

    id = "control-spam"

    def __init__(self, kit: GossipKit, *, ids: int = 500) -> None:
        """`ids` is the number of message ids in one message."""
        super().__init__(kit)
        self._ids = ids

    async def heartbeat(self, link: "Link") -> None:
        """Send GRAFT, then all kinds as fast as the node reads them."""
        await super().heartbeat(link)
        for _ in range(_ROUNDS):
            for control in self._kinds():
                await link.control(**control)

    def _kinds(self) -> list[Mapping[str, Any]]:
        """One RPC of each kind."""
        from libp2p.pubsub.pb import rpc_pb2  # noqa: PLC0415

        topic = self.kit.topic
        ids = [self.kit.rng.randbytes(32) for _ in range(self._ids)]
        return [
            {"ihave": [rpc_pb2.ControlIHave(topicID=topic, messageIDs=ids)]},
            {"iwant": [rpc_pb2.ControlIWant(messageIDs=ids[:60])]},
            {"graft": [rpc_pb2.ControlGraft(topicID=topic)] * 10},
            {"graft": [rpc_pb2.ControlGraft(topicID=f"/sapo/{ids[0].hex()}")] * 10},
            {"prune": [rpc_pb2.ControlPrune(topicID=topic, backoff=60)]},
            {"idontwant": [rpc_pb2.ControlIDontWant(messageIDs=ids[:10])]},
        ]


class MessageFlood(SilentSybils):
    """A few peers publish many times as many rollouts as an honest node, each under a new key.

    Each rollout is valid, and gives no group to train on. That shows only when it is verified.
    """

    id = "message-flood"

    def __init__(self, kit: GossipKit, *, per_heartbeat: int = 10) -> None:
        """`per_heartbeat` is the number of messages that each host publishes every two seconds."""
        super().__init__(kit)
        self._per_heartbeat = per_heartbeat
        self._kit = Kit(kit.manifest, (), _unsolved, kit.rng)
        self._rollouts = self._signed_rollouts()
        self._began = 0.0
        self._made: dict[tuple[str, int], list[Any]] = {}
        """The messages of a host at one of its heartbeats: the same for all links, as of an honest peer."""

    async def play(self) -> None:
        """Run all hosts."""
        self._began = trio.current_time()
        await super().play()

    async def heartbeat(self, link: "Link") -> None:
        """Send GRAFT, then the messages of this heartbeat."""
        await super().heartbeat(link)
        place = (link.peer.address, int((trio.current_time() - self._began) / BEAT_SECONDS))
        if place not in self._made:
            self._made[place] = [
                link.peer.signed(rollout, self.kit.topic) for rollout in islice(self._rollouts, self._per_heartbeat)
            ]
        for message in self._made[place]:
            await link.publish(message)

    def _signed_rollouts(self) -> Iterator[bytes]:
        """Rollouts of the current epoch, each of a new key."""
        manifest = self.kit.manifest
        while True:
            private = Ed25519PrivateKey.from_private_bytes(self.kit.rng.randbytes(32))
            key = Key(private.public_key().public_bytes_raw(), private.sign)
            epoch = self.kit.epoch + int((trio.current_time() - self._began) / manifest.epoch_seconds)
            yield self._kit.message(key, epoch, 0, self._kit.flawless(key, epoch, 0, 4))


def _unsolved(task: Assignment) -> Solution:
    """The claims about a task that the attacker has not computed."""
    digest = hashlib.sha256(repr(task).encode()).digest()
    return Solution(task.spec.dataset, "", "unknown to me", digest, lambda _: "", task.spec.levels, lambda _: 0)


class FalseAddresses(Sybils):
    """Honest nodes are told to dial addresses of a victim, or addresses at which no host listens.

    The attacker names them in its own peer records, so that nodes seek it there when it leaves, and as the peers that
    it recommends when it leaves a mesh.
    """

    id = "false-addresses"

    def __init__(self, kit: GossipKit, *, stays: int = 2, named: int = 8) -> None:
        """A host stays for `stays` heartbeats on each connection, and names `named` addresses at a time."""
        super().__init__(kit)
        self._stays = stays
        self._named = named
        self._turn = count()
        self._heartbeats: Counter[Link] = Counter()

    def _addresses(self) -> Sequence[str]:
        return [nowhere(self.kit.rng) for _ in range(self._named)]

    async def greet(self, link: "Link") -> None:
        """Send a peer record with the false addresses, before anything else."""
        await link.say_where(self._addresses())
        await link.subscribe(self.kit.topic)

    async def heartbeat(self, link: "Link") -> None:
        """Recommend other peers, and leave after some heartbeats."""
        await link.graft(self.kit.topic)
        await link.exchange(self.kit.topic, next(self._turn).to_bytes(8), self._addresses())
        self._heartbeats[link] += 1
        if self._heartbeats[link] == self._stays:
            del self._heartbeats[link]
            await link.close()


class FalseIntroductions(Sybils):
    """Peers that honest nodes chose to dial answer a request for peers with addresses at which no host listens.

    They forward every message and wait to be dialled, since a node asks only peers that it dialled itself. Each answer
    has the greatest number of addresses, and no address twice.
    """

    id = "false-introductions"

    def __init__(self, kit: GossipKit) -> None:
        super().__init__(kit)
        self._turn = count()

    def equip(self, peer: "Peer") -> None:
        """Answer requests."""
        peer.answer(self.kit.asking, self._answer)

    def _answer(self, request: bytes) -> bytes:
        """To a request for peers: keys that no peer has, at addresses at which no host listens. To a request for
        messages: none.
        """
        if not isinstance(decode_request(request), PeersRequest):
            return encode_listing([])
        rng = self.kit.rng
        named = [
            PeerAddress(next(self._turn).to_bytes(2) + rng.randbytes(30), nowhere(rng)) for _ in range(MAX_PX_PEERS)
        ]
        return encode_peers(named)

    async def greet(self, link: "Link") -> None:
        """Send the true peer record, as every peer does: nodes ask only peers whose record they have."""
        await link.say_where([link.peer.address.partition("/p2p/")[0]])
        await super().greet(link)

    async def reach(self, peer: "Peer", address: str) -> "Link":
        """Wait until the honest node dials."""
        while (link := peer.links.get(peer_of(address))) is None:  # noqa: ASYNC110 - the library has no event for it
            await trio.sleep(0.2)
        return link


_BEGINNING = b"\x80\x80\x20"
"""The length of an RPC of half a megabyte, of which next to nothing follows."""

_BYTE_SECONDS = 4.0
"""Seconds between two bytes: the stream looks alive."""
_PAUSE_SECONDS = 0.3
"""Seconds between two new streams on a connection: more at a time fail to open."""


class SlowStreams(GossipAttack):
    """Many streams are opened, and on each a message arrives byte by byte and never ends."""

    id = "slow-streams"
    layer = "wire"

    def __init__(self, kit: GossipKit, *, streams: int = 20, judged_after: float = 28.0) -> None:
        """Each host opens `streams` streams to each honest node. `report` counts those that the node closed within
        `judged_after` seconds.
        """
        super().__init__(kit)
        self._streams = streams
        self._judged_after = judged_after
        self._held: list[tuple[float, float]] = []
        """The opening time of each stream, and the seconds for which it was open."""
        self._end = 0.0

    async def play(self) -> None:
        """All hosts at all honest nodes."""
        try:
            async with trio.open_nursery() as nursery:
                for number in range(self.kit.count):
                    nursery.start_soon(self._live, number)
        finally:
            self._end = trio.current_time()

    async def _live(self, number: int) -> None:
        async def ignore(_sender: str, _rpc: Any) -> None: ...

        async with self.kit.peer(number, ignore) as peer, trio.open_nursery() as nursery:
            for address in self.kit.honest:
                nursery.start_soon(self._hold, peer, address)
                await trio.sleep(_PAUSE_SECONDS)

    async def _hold(self, peer: "Peer", address: str) -> None:
        """Dial, open all streams, and dial again when the connection ends."""
        while True:
            with suppress(Exception):
                async with trio.open_nursery() as nursery:
                    link = await peer.dial(address)
                    for _ in range(self._streams):
                        nursery.start_soon(self._drip, link)
                        await trio.sleep(_PAUSE_SECONDS)
            await trio.sleep(2)

    async def _drip(self, link: "Link") -> None:
        """Send byte after byte on one more stream, until the node closes it."""
        with suppress(Exception):
            await self._keep_waiting(await link.another())

    async def _keep_waiting(self, link: "Link") -> None:
        began, place = trio.current_time(), len(self._held)
        self._held.append((began, inf))
        with suppress(Exception):
            await link.write(_BEGINNING)
            while True:
                await trio.sleep(_BYTE_SECONDS)
                await link.write(b"\0")
        self._held[place] = (began, trio.current_time() - began)

    def report(self) -> Mapping[str, Any]:
        """Return how many streams were opened, and how many of the judged ones the honest nodes closed."""
        judged = [lasted for began, lasted in self._held if began < self._end - self._judged_after]
        return {
            "opened": len(self._held),
            "judged": len(judged),
            "closed": sum(lasted <= self._judged_after for lasted in judged),
        }
