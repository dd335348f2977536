"""Child processes of a node (the sandbox and the learner): how they start, exchange frames, and end with their parent.

Imports only the standard library, trio and `sapo_protocol`.
"""
