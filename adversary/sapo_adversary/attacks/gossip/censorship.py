from collections.abc import Sequence

from sapo_adversary.attacks.gossip.addresses import peer_of
from sapo_adversary.attacks.gossip.sybils import Sybils


class Censorship(Sybils):
    """Attackers around a node forward every message except those of that node.

    They crowd into the meshes of the victim and of the nodes that it dials, so that a router that sends its own
    messages only to its mesh reaches no other peer. The first attacker is connected with all nodes and forwards as
    honest peers do.
    """

    id = "censorship"

    def targets(self, number: int) -> Sequence[str]:
        """The victim and its neighbours; for the first attacker all honest nodes."""
        return self.kit.honest if number == 0 else (self.kit.victim, *self.kit.neighbours)

    def passes_on(self, author: str) -> bool:
        """Not the messages of the victim."""
        return author != peer_of(self.kit.victim)
