"""The simulated nodes on real libp2p: `realtime` plays a simulation, each node on its own loopback address.

`loopback` gives nodes their networks (`honest`), `watch` counts what arrives, and `horde` runs the attackers in a
process of their own. Imports the simulator; `engine` calls `simulate_realtime(simulation)`.
"""
