"""Attacks on the network itself: hosts over real libp2p, on loopback, in a process of their own.

`kit` and `peer` give an attack its hosts, `sybils` is the base of most attacks. Imports no other room. The simulator
starts the process and talks to it by lines of JSON:

    python -m sapo_adversary.attacks.gossip
"""
