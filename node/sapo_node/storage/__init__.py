"""State that survives a crash: the SQLite database of a node, its key, and the counters that the key has used.

Also `context`: the swarm, clock, key and random generator that the parts of a node share. Imports `processes` for the
clock. Every other room keeps its own tables in this database.
"""
