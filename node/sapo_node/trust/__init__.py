"""How much this node trusts each peer, from what this node saw itself. No opinion of a peer ever enters.

Facts come in through `Ledger.report`, and the state of a peer comes out of `Ledger.state`. `constants` holds the
numbers, and `limits` hands them to the parts. Imports `storage`.
"""
