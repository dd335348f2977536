"""The mesh of one topic: the peers that messages are forwarded to, chosen by score.

The rules are those of GossipSub v1.0 and v1.1 (libp2p specs, pubsub/gossipsub): the mesh is filled to DEGREE below LOW
and pruned to DEGREE above HIGH; at least DIALLED mesh peers are peers that this node dialled (D_out), because strangers
can fill a mesh; a pruned peer stays out for its back-off; a mesh with a low median score takes in better peers.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from sapo_node.gossip.defences import GossipDefences
from sapo_node.gossip.peers import Peer
from sapo_node.gossip.score import TOLERATED, Offence, Scores
from sapo_node.processes.bounded import Bounded

DEGREE, LOW, HIGH = 6, 4, 10  # mesh peers: the target; below LOW and above HIGH the mesh is changed
DIALLED = 2  # least number of mesh peers that this node dialled
KEPT_BY_SCORE = 4  # best peers that stay in a mesh that is too large; of the others random ones stay, so also new ones

OPPORTUNITY_BEATS = 15  # heartbeats between attempts to improve a mesh
OPPORTUNITY_SCORE = 1.0  # median score of a mesh below which the node tries to improve it
OPPORTUNITY_PEERS = 2  # that are added in one attempt

BACK_OFF = 60  # seconds out of a mesh, for a peer with a negative score
CROWDED_BACK_OFF = 10  # seconds out of a mesh that was too large: its first prunes come before any peer has a score
LEFT_BACK_OFF = 10  # seconds out of a mesh whose topic this node stopped following
LONGEST_BACK_OFF = 600  # seconds for which a peer can keep this node out of its mesh
BACK_OFF_SLACK = 5  # seconds by which two nodes may differ about the end of a back-off
BACK_OFFS = 1024  # peers in back-off


@dataclass(frozen=True, slots=True)
class Swarm:
    """The peers, scores, random numbers and defences that all topics have in common."""

    peers: dict[str, Peer]
    scores: Scores
    rng: random.Random
    defences: GossipDefences

    def score(self, peer: str, now: float) -> float:
        return self.scores.score(now, peer)

    def sample(self, peers: Iterable[str], count: int) -> list[str]:
        """`count` of these peers at random, or all if there are fewer. Equal seeds choose equal peers."""
        ordered = sorted(peers)
        return self.rng.sample(ordered, max(0, min(count, len(ordered))))


class Topic:
    """One topic: the peers that follow it, and its mesh."""

    def __init__(self, name: bytes, max_bytes: int, swarm: Swarm) -> None:
        self.name = name
        self.max_bytes = max_bytes
        """Size of the largest message."""
        self.is_followed = False
        """True if this node follows the topic."""
        self.followers: set[str] = set()
        self.mesh: set[str] = set()
        """Empty if this node does not follow the topic."""
        self._back_off: Bounded[str, float] = Bounded(BACK_OFFS)
        """By peer: until when it must stay out of the mesh."""
        self._swarm = swarm

    # Single peers.

    def invite(self, peers: Iterable[str]) -> None:
        """Add peers to the mesh, and tell them."""
        for peer in peers:
            self.mesh.add(peer)
            self._swarm.peers[peer].outbox.graft(self.name)

    def _dismiss(self, peer: str, seconds: int, now: float) -> None:
        """Remove a peer from the mesh and tell it. Our back-off is longer, because the peer's begins later."""
        self.mesh.discard(peer)
        self.keep_out(peer, seconds + BACK_OFF_SLACK, now)
        self._swarm.scores.dismissed(now, peer, self.name)
        self._swarm.peers[peer].outbox.prune(self.name, seconds)

    def keep_out(self, peer: str, seconds: float, now: float) -> None:
        """Keep a peer out of the mesh for these seconds, or longer if an earlier back-off ends later."""
        self._back_off[peer] = max(self._back_off.get(peer, 0.0), now + seconds)

    def grafted(self, peer: str, now: float) -> None:
        """The peer asked to join the mesh. It joins unless its back-off still runs or its score is negative."""
        defences = self._swarm.defences
        early = self._back_off.get(peer, 0.0) - now > BACK_OFF_SLACK
        if early and defences.control_caps:
            self._swarm.scores.offended(now, peer, Offence.EARLY_GRAFT)
        if early or (defences.scored_mesh and self._swarm.score(peer, now) < 0):
            self.mesh.discard(peer)
            self.keep_out(peer, BACK_OFF, now)
            self._swarm.peers[peer].outbox.prune(self.name, BACK_OFF)
        else:
            self.mesh.add(peer)

    def pruned(self, peer: str, seconds: int, now: float) -> None:
        """The peer removed this node from its mesh, with a back-off of these seconds; 0 if it named none."""
        self.mesh.discard(peer)
        self.keep_out(peer, min(seconds, LONGEST_BACK_OFF) or BACK_OFF, now)

    def joined(self, peer: str, now: float) -> None:
        """A peer follows the topic, or can be written to. It joins a mesh that is too small at once."""
        if self.is_followed and len(self.mesh) < LOW and peer not in self.mesh and self._may_join(peer, now):
            self.invite([peer])

    def forget(self, peer: str) -> None:
        """The peer left, or stopped following the topic."""
        self.followers.discard(peer)
        self.mesh.discard(peer)

    # This node.

    def follow(self, now: float) -> None:
        """This node begins to follow the topic."""
        self.is_followed = True
        self.invite(self._swarm.sample(self._candidates(now), DEGREE))

    def leave(self, now: float) -> None:
        """This node stops following the topic."""
        self.is_followed = False
        for peer in sorted(self.mesh):
            self._dismiss(peer, LEFT_BACK_OFF, now)

    def receivers(self, *, own: bool) -> list[str]:
        """The peers to send a message to. An `own` message goes to all that follow the topic: a mesh full of strangers
        cannot withhold it.
        """
        if own and self._swarm.defences.flood_publishing:
            return sorted(self.followers)
        if own and not self.is_followed:
            return self._swarm.sample(self.followers, DEGREE)
        return sorted(self.mesh)

    # The heartbeat.

    def tend(self, beat: int, now: float) -> None:
        """One heartbeat: fill or prune the mesh."""
        for peer in [peer for peer, until in self._back_off.items() if until <= now]:
            del self._back_off[peer]
        defences = self._swarm.defences
        if defences.scored_mesh:
            for peer in sorted(self.mesh - self._spared(now)):
                if self._swarm.score(peer, now) < 0:
                    self._dismiss(peer, BACK_OFF, now)
        if len(self.mesh) < LOW:
            self.invite(self._swarm.sample(self._candidates(now), DEGREE - len(self.mesh)))
        elif len(self.mesh) > HIGH:
            for peer in self._swarm.sample(self.mesh - self._kept(now), len(self.mesh) - DEGREE):
                self._dismiss(peer, CROWDED_BACK_OFF, now)
        if defences.dialled_mesh_peers:
            lacking = DIALLED - len(self._dialled(self.mesh))
            self.invite(self._swarm.sample(self._dialled(self._candidates(now)), lacking))
        if defences.scored_mesh:
            self.invite(self._better(beat, now))

    def _candidates(self, now: float) -> set[str]:
        """The peers that may be added to the mesh."""
        return {peer for peer in self.followers - self.mesh if self._may_join(peer, now)}

    def _may_join(self, peer: str, now: float) -> bool:
        if not self._swarm.peers[peer].outbox.is_open or self._back_off.get(peer, 0.0) > now:
            return False
        return not self._swarm.defences.scored_mesh or self._swarm.score(peer, now) >= 0

    def _dialled(self, peers: Iterable[str]) -> set[str]:
        """Those of the peers that this node dialled."""
        return {peer for peer in peers if self._swarm.peers[peer].outbound}

    def _ranked(self, peers: Iterable[str], now: float) -> list[str]:
        """Peers by score, the best first. Equal scores are ordered at random."""
        ordered = self._swarm.sample(peers, BACK_OFFS)
        return sorted(ordered, key=lambda peer: -self._swarm.score(peer, now))

    def _spared(self, now: float) -> set[str]:
        """The mesh peers that stay despite a negative score: the best DIALLED that we dialled.

        Their offences are at most TOLERATED. An attacker that sends many messages to this node alone makes all other
        peers look idle.
        """
        ranked = self._ranked(self._dialled(self.mesh), now)
        return {peer for peer in ranked[:DIALLED] if self._swarm.scores.of(now, peer).offences <= TOLERATED}

    def _kept(self, now: float) -> set[str]:
        """The mesh peers that stay in a mesh that is too large: the KEPT_BY_SCORE best, and DIALLED that we dialled."""
        defences = self._swarm.defences
        best = self._ranked(self.mesh, now)[:KEPT_BY_SCORE] if defences.scored_mesh else ()
        dialled = self._swarm.sample(self._dialled(self.mesh), DIALLED) if defences.dialled_mesh_peers else ()
        return {*best, *dialled}

    def _better(self, beat: int, now: float) -> list[str]:
        """Peers to add to a mesh with a low median score (opportunistic grafting): the best above that median.

        Every OPPORTUNITY_BEATS the node looks for them, if the mesh has room. While no mesh peer delivers, it looks at
        each heartbeat, in a full mesh too: peers that all deliver nothing have no deficit beside each other.
        """
        scores = [self._swarm.score(peer, now) for peer in self.mesh]
        middle = median(scores) if scores else OPPORTUNITY_SCORE
        is_dark = max(scores, default=OPPORTUNITY_SCORE) <= 0
        has_turn = beat % OPPORTUNITY_BEATS == 0 and len(self.mesh) < HIGH
        if middle >= OPPORTUNITY_SCORE or not (is_dark or has_turn):
            return []
        better = [peer for peer in self._candidates(now) if self._swarm.score(peer, now) > middle]
        return self._ranked(better, now)[:OPPORTUNITY_PEERS]
