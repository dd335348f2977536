"""Turns a signed rollout into verified groups: this node rebuilds each task and computes each reward itself.

`scheduler` draws a rollout from `groups.book`, `verifier` verifies it, and `scheduler` enters the findings in the book.
Peers' completions are scored in `sandbox`, a process that has no other rights.
"""
