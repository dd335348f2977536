"""Malicious swarms on demand, to find out what a node withstands. It attacks only nodes that this machine runs
itself.
"""
