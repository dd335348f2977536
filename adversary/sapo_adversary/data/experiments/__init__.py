"""Learning experiments: each file holds all numbers of one."""
