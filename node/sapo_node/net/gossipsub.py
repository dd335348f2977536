"""Whom the router sends to: what a crowd of strangers must not be able to take from a node.

Anybody may ask into a mesh, as often as they like, so that a mesh says little about whom a node would choose. Three
rules of GossipSub v1.1 that the library lacks or weakens hold against that: some mesh peers are ones that we dialled
(D_out), own messages go to all who listen (flood publishing), and peers outside of the mesh are told what there is.
"""

from collections import defaultdict
from typing import Any

from libp2p.pubsub.gossipsub import GossipSub

from sapo_node.net.defences import NETWORK_DEFENDED, NetworkDefences

DIALLED = 2  # mesh peers, at least, that we dialled ourselves
OFFERED_PEERS = 6  # at least, outside of the mesh, at each heartbeat


class SteadyGossipSub(GossipSub):  # type: ignore[misc]
    """The router, with those rules."""

    def __init__(self, *, defences: NetworkDefences = NETWORK_DEFENDED, **settings: Any) -> None:
        """`settings` are the library's."""
        super().__init__(**settings)
        self.defences = defences

    def mesh_heartbeat(self) -> tuple[Any, Any]:
        """Whom to ask into the mesh and whom to send out of it."""
        grafts, prunes = super().mesh_heartbeat()
        if not self.defences.dialled_mesh_peers:
            return grafts, prunes
        for topic, mesh in self.mesh.items():
            dialled = self._dialled(topic)
            waiting = {peer for peer in dialled if not self._check_back_off(peer, topic)}
            for peer in self.select_from_minus(DIALLED - len(mesh & dialled), waiting, mesh):
                mesh.add(peer)
                self._notify_mesh_peer_added(peer, topic)
                grafts[peer].append(topic)
        return grafts, prunes

    def _select_peers_for_pruning(self, topic: str, num_to_prune: int) -> list[Any]:
        """As ever, but for DIALLED of those that we dialled."""
        if not self.defences.dialled_mesh_peers:
            return list(super()._select_peers_for_pruning(topic, num_to_prune))
        kept = self.select_from_minus(DIALLED, self.mesh[topic] & self._dialled(topic), ())
        worst = super()._select_peers_for_pruning(topic, num_to_prune + len(kept))
        return [peer for peer in worst if peer not in kept][:num_to_prune]

    def _dialled(self, topic: str) -> set[Any]:
        """The peers of a topic that we dialled."""
        connections = self.pubsub.host.get_network().get_connections
        return {
            peer
            for peer in self.pubsub.peer_topics.get(topic, ())
            if any(link.direction.name == "OUTBOUND" for link in connections(peer))
        }

    def _get_peers_to_send(self, topic_ids: Any, msg_forwarder: Any, origin: Any, msg_id: Any = None) -> set[Any]:
        """Our own messages go to everybody who follows their topic: a mesh full of strangers cannot silence us."""
        chosen = set(super()._get_peers_to_send(topic_ids, msg_forwarder, origin, msg_id))
        if msg_forwarder == self.pubsub.my_id and self.defences.flood_publishing:
            chosen.update(*(self.pubsub.peer_topics.get(topic, ()) for topic in topic_ids))
        return chosen

    def gossip_heartbeat(self) -> defaultdict[Any, dict[str, list[bytes]]]:
        """Whom to offer which of the latest messages: peers outside of the mesh, drawn at random.

        The library passes over whoever is in back-off, which concerns the mesh alone: a node whose mesh was taken from
        it would be offered nothing by those it lost.
        """
        if not self.defences.gossip_repair:
            offers: defaultdict[Any, dict[str, list[bytes]]] = super().gossip_heartbeat()
            return offers
        offers = defaultdict(dict)
        for topic, mesh in self.mesh.items():
            latest = list(self.mcache.window(topic))
            others = self.pubsub.peer_topics.get(topic, set()) - mesh
            count = max(OFFERED_PEERS, len(others) // 4)
            for peer in self.select_from_minus(count, others, ()) if latest else ():
                offers[peer][topic] = latest
        return offers
