"""Scenarios: in each file one attack, the swarm that it meets, what must hurt and what must hold."""
