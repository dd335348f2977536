"""The command line `sapo-node`: commands, and how they show a node on a terminal.

Imports every other room. Nothing imports this room.
"""
