from collections.abc import Sequence

from sapo_adversary.attacks.gossip.sybils import SilentSybils


class Eclipse(SilentSybils):
    """One node is surrounded: strangers take its connections and its mesh, and it hears and says nothing any more.

    They are more than it has slots, take each that comes free, and pass nothing on.
    """

    id = "eclipse"

    def targets(self, number: int) -> Sequence[str]:
        """The victim alone."""
        del number
        return (self.kit.victim,)
