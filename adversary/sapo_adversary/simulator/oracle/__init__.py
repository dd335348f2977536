"""The ground truth that no node can see: who wrote what, what it is worth, and whom each node holds for what.

`audit` checks everything that honest nodes train on, `states` follows their ledgers. Neither influences a run.
Imports the node and `scoring`; the simulator calls both after every round.
"""
