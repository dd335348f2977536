"""The commands of `sapo-adversary`."""
