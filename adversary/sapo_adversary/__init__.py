"""Simulated swarms, attacks and measurements, to find out what a node learns and what it withstands.

The rooms, from the bottom up: `files`, `data`, `attacks`, `ablations`, `simulator`, `scenarios`, `experiments`,
`load`, `cli`. Attacks go only to nodes that this machine runs itself.
"""
