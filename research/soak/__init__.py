"""A swarm of real processes over hours, some of which are killed again and again: what grows, and what does not
recover.

`member` is one node's process, `play` runs the swarm and its faults, `report` fits the growth and reads the logs.
"""
