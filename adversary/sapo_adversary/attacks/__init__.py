"""Attackers. They speak bytes, and know nothing of a node but the wire protocol."""
