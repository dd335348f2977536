"""From bytes of the network to verified signatures: the validator decides ACCEPT, IGNORE or REJECT for each message.

A rollout comes in through `validator` (gossip) or `sync` (request/response), and waits in `groups.book`.
Imports `net`, `groups`, `trust` and `storage`. Nothing here rebuilds a task or scores a completion.
"""
