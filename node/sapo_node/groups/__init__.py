"""The values that flow through a node: groups of completions, verified and local, and what is computed from one group.

Verification makes a `VerifiedGroup` from each group of a peer's rollout. A round of this node is a list of
`LocalGroup`. Imports only `sapo_protocol` and the standard library, so that every process can import it.
"""
