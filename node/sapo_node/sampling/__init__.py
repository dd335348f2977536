"""Which verified groups a round trains on, and with what weight: SampleExternal of Algorithm 1 (arXiv 2509.08721).

A `VerifiedGroup` comes from the offer of `groups.book`, passes `filters`, and goes out of `sampler` as a
`WeightedGroup`. Imports `groups`, `trust` and `storage`. Nothing here knows of messages or of torch.
"""
