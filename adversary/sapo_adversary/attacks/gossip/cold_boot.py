from sapo_adversary.attacks.gossip.sybils import SilentSybils


class ColdBoot(SilentSybils):
    """The attackers run before all honest nodes, sit in every mesh and forward nothing.

    They dial each honest node as soon as it listens, while it knows no other honest node.
    """

    id = "cold-boot"
