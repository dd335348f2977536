"""Attacks on the network itself: hosts of their own over real libp2p, in a process of their own, on loopback."""
