"""Transports opaque messages between the nodes of one swarm, and manages their connections.

This room does not know what a message means or which peer to trust: the node passes callables for both.
"""
