"""The page of a running node: what it learns, from whom, what it refused and why. Read-only."""

from sapo_node.observability.dashboard.server import Dashboard, parse_place

__all__ = ["Dashboard", "parse_place"]
