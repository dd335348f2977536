"""The command line `sapo-node`: its commands, and the terminal views of a node.

This room imports every other room. No other room imports it.
"""
