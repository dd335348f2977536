"""Whole swarms in one process: the node's real parts over a network in memory on virtual time, from a seed.

`simulation` says what is simulated, `swarm` plays it, `runs` plays many and keeps the records, `engine` says where.
`libp2p` plays the same nodes on loopback and real time, `oracle` knows what no node can see. A swarm without attackers
is honest. Imports `files`, `attacks`, `scoring` and `ablations`:

    record = simulate(Simulation("pair", (NodeSpec(count=2),), seed=1))
"""
