"""Chooses the peers that the gossip router sends to, so that many strangers cannot cut a node off.

Any peer may ask to join a mesh (GRAFT) as often as it likes, so strangers can fill it. Three rules of GossipSub v1.1,
which the library lacks or weakens, protect the node:

- D_out: at least DIALLED mesh peers are peers that this node dialled.
- Flood publishing: own messages go to all peers that follow the topic.
- Gossip: at each heartbeat, OFFERED_PEERS or more peers outside of the mesh are offered the latest messages.

A back-off counts on the steady clock. The library counts it in Unix time: a clock that is a day ahead for a moment
would keep the peers that were pruned in that moment out of the mesh for a day.
"""

from collections import defaultdict
from typing import Any

import trio
from libp2p.pubsub.gossipsub import GossipSub

from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences

DIALLED = 2  # least number of mesh peers that this node dialled
OFFERED_PEERS = 6  # least number of peers outside of the mesh that get an offer at each heartbeat


class SteadyGossipSub(GossipSub):  # type: ignore[misc]
    """The router, with these three rules."""

    def __init__(self, *, defences: NetworkDefences = NETWORK_DEFENDED, **settings: Any) -> None:
        """`settings` are those of the library's GossipSub."""
        super().__init__(**settings)
        self.defences = defences

    def mesh_heartbeat(self) -> tuple[Any, Any]:
        """The peers to GRAFT into the mesh and the peers to PRUNE from it."""
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

    def _add_back_off(self, peer: Any, topic: str, is_unsubscribe: bool, backoff_duration: int = 0) -> None:  # noqa: FBT001
        """Keep a peer out of the mesh for these seconds, or for those of the settings if there are none."""
        seconds = backoff_duration or (self.unsubscribe_back_off if is_unsubscribe else self.prune_back_off)
        waiting = self.back_off.setdefault(topic, {})
        waiting[peer] = max(waiting.get(peer, 0.0), trio.current_time() + seconds)

    def _check_back_off(self, peer: Any, topic: str) -> bool:
        """Return whether a peer must stay out of the mesh; the library asks this before every graft."""
        return bool(self.back_off.get(topic, {}).get(peer, 0.0) > trio.current_time())

    def _select_peers_for_pruning(self, topic: str, num_to_prune: int) -> list[Any]:
        """The library's choice, without DIALLED of the peers that this node dialled."""
        if not self.defences.dialled_mesh_peers:
            return list(super()._select_peers_for_pruning(topic, num_to_prune))
        kept = self.select_from_minus(DIALLED, self.mesh[topic] & self._dialled(topic), ())
        worst = super()._select_peers_for_pruning(topic, num_to_prune + len(kept))
        return [peer for peer in worst if peer not in kept][:num_to_prune]

    async def flush_pending_messages(self, peer_id: Any) -> None:
        """Put what waited for the subscriptions of a peer into its queue. The library writes it to the stream beside
        the queue, which mixes the bytes of two RPCs.
        """
        self._prune_pending_messages(peer_id)
        for _, rpc in self._pending_messages.pop(peer_id, ()):
            if any(peer_id in self.pubsub.peer_topics.get(topic, ()) for topic in rpc.publish[0].topicIDs):
                self.send_rpc(peer_id, rpc)

    def _dialled(self, topic: str) -> set[Any]:
        """The peers on a topic that this node dialled."""
        connections = self.pubsub.host.get_network().get_connections
        return {
            peer
            for peer in self.pubsub.peer_topics.get(topic, ())
            if any(link.direction.name == "OUTBOUND" for link in connections(peer))
        }

    def _get_peers_to_send(self, topic_ids: Any, msg_forwarder: Any, origin: Any, msg_id: Any = None) -> set[Any]:
        """The peers to send a message to. An own message goes to all peers that follow its topic: a mesh full of
        strangers cannot withhold it.
        """
        chosen = set(super()._get_peers_to_send(topic_ids, msg_forwarder, origin, msg_id))
        if msg_forwarder == self.pubsub.my_id and self.defences.flood_publishing:
            chosen.update(*(self.pubsub.peer_topics.get(topic, ()) for topic in topic_ids))
        return chosen

    def gossip_heartbeat(self) -> defaultdict[Any, dict[str, list[bytes]]]:
        """The messages to offer (IHAVE), by peer: the latest ones, to random peers outside of the mesh.

        The library skips peers in back-off. A node that strangers drove out of its mesh would then get no offers from
        the mesh peers that it lost.
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
