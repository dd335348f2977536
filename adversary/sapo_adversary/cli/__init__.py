"""The commands of `sapo-adversary`, one file per command; `main` is the group.

A command reads options, calls a room and prints; it may import every room, and no room imports it. `played`, `engines`
and `results` hold the options that commands share.
"""
