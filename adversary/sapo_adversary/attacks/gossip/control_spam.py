from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_adversary.attacks.gossip.sybils import SilentSybils

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link

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
