from collections.abc import Sequence

from sapo_adversary.attacks.gossip.addresses import peer_of
from sapo_adversary.attacks.gossip.sybils import Sybils


class Censorship(Sybils):
    """Those around a node pass on everything but what that node has to say.

    They crowd into the meshes of the victim and of those it dials, so that a router that sends its own messages to its
    mesh alone sends them to nobody else. The first of them is connected with all, and forwards as good peers do.
    """

    id = "censorship"

    def targets(self, number: int) -> Sequence[str]:
        """The victim and its neighbours; all honest nodes for the one that keeps the victim content."""
        return self.kit.honest if number == 0 else (self.kit.victim, *self.kit.neighbours)

    def passes_on(self, author: str) -> bool:
        """Not what the victim wrote."""
        return author != peer_of(self.kit.victim)
