"""What must survive a crash: the SQLite database of a node, its key, and the counters that its key has used.

Also `context`: the swarm, clock, key and randomness that the parts of a node share. Imports `processes` for the clock.
Every other room keeps its own tables in the one database.
"""
