"""A round of SAPO: generate, share, verify, sample, train; and the log of batches that makes training atomic.

Own rollouts go out through `rollout`. Groups come in from `sampling` and go to the learner through `trainer`. Imports
all rooms below it, and never torch.
"""
