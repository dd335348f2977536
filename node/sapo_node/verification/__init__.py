"""From a signed rollout to verified groups: this node rebuilds each task and computes each reward itself.

A rollout comes in through `scheduler`, out of `ingest.pending`, and goes out of `verifier` as `VerifiedGroup` into
`sampling.buffer`. Completions of peers are scored in `sandbox`, a process that can do nothing else.
"""
