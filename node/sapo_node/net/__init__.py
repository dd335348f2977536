"""Carriage of opaque messages between the nodes of one swarm: who is connected, and bytes in and out.

Nothing here knows what a message means or whom to trust; both come in as callables.
"""
