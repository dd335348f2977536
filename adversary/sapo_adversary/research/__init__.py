"""Measurements beside scenarios and experiments, each with a command of its own.

`poison-search` searches for the strongest poison. `gossip-cost` estimates what gossip costs. `soak` runs a swarm for
hours under faults. `load` loads a live node. `policies` builds models for mixed swarms. `cluster` plays runs on Ray.
Imports the simulator and the rooms below it. No measurement imports another; `poison-search` and `cluster` use
`policies`.
"""
