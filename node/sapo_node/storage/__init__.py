"""What must survive a crash: the SQLite database of a node, its key, and the counters that its key has used.

Imports `sapo_protocol` alone. Every other room keeps its own tables in the one database.
"""
