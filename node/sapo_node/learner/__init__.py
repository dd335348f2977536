"""The learner: a process of its own, the only one of a node that imports torch. The node calls it through `client`."""
