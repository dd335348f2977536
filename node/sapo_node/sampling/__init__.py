"""Which verified groups a round trains on, and with what weight: SampleExternal of Algorithm 1 (arXiv 2509.08721).

A `VerifiedGroup` comes in through `buffer`, passes `filters`, and goes out of `sampler` as a `WeightedGroup`. Imports
`trust`, `storage` and `groups`. Nothing here knows of messages or of torch.
"""
