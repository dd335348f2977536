"""The feed: a local HTTP service by which a trainer of another program (TRL, prime-rl, verl) is this node's policy.

The node assigns, scores, signs, shares, verifies, filters and stores batches. The trainer samples completions and takes
the steps. For the training loop it is one more `Policy`, so that the batch log's promise, each group trained on once,
holds for it as for the learner.
"""
