from sapo_adversary.attacks.gossip.sybils import SilentSybils


class ColdBoot(SilentSybils):
    """Whoever starts finds strangers first: they are there before all honest nodes, in every mesh, and pass nothing on.

    They dial each honest node as soon as it listens, when none of them knows another.
    """

    id = "cold-boot"
