"""Turns a signed rollout into verified groups: this node rebuilds each task and computes each reward itself.

`scheduler` takes a rollout from `ingest.pending`. `verifier` puts each `VerifiedGroup` into `sampling.buffer`. Peers'
completions are scored in `sandbox`, a process that has no other rights.
"""
