"""Load on a live node: locust in front, publishers with their own keys behind it, and the delivery of their
messages.

`locustfile` is what locust reads, `publishers` the process with the libp2p hosts, `messages` what they send, `keys` who
they are. Imports `attacks` and `scoring`.
"""
