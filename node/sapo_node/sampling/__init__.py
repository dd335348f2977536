"""SampleExternal of Algorithm 1 (arXiv 2509.08721): the verified groups that a round trains on, and their weights.

A `VerifiedGroup` comes from the offer of `groups.book`, passes `filters`, and goes out of `sampler` as a
`WeightedGroup`. Imports `groups`, `trust` and `storage`. No module here imports messages or torch.
"""
