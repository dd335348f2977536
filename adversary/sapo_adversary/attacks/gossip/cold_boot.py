from sapo_adversary.attacks.gossip.sybils import Sybils


class ColdBoot(Sybils):
    """Whoever starts finds strangers first: they are there before all honest nodes, in every mesh, and pass nothing on.

    They dial each honest node as soon as it listens, when none of them knows another.
    """

    id = "cold-boot"
    row = 17

    def passes_on(self, author: str) -> bool:
        """Nothing."""
        del author
        return False
