"""Mathematics by value: decides whether an answer states the same number, tuple, set, interval or equation."""

from sapo_node.tasks.mathematics.equality import equal

__all__ = ["equal"]
