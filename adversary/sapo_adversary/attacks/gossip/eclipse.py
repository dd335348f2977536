from collections.abc import Sequence

from sapo_adversary.attacks.gossip.sybils import SilentSybils


class Eclipse(SilentSybils):
    """Attackers take all connections and mesh places of one node, so that it receives and sends nothing.

    They are more than the node has slots, take each slot that becomes free, and forward nothing.
    """

    id = "eclipse"

    def targets(self, number: int) -> Sequence[str]:
        """Only the victim."""
        del number
        return (self.kit.victim,)
