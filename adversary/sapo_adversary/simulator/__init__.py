"""Whole swarms in one process on virtual time: the node's real parts over a network in memory, from a seed.

An honest swarm is a scenario without attackers. `scenario` says what is simulated, `swarm` plays it, `runs` plays many.
"""
