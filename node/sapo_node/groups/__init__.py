"""The values that flow through a node: groups of completions, verified and local, and what is computed from one group.

A rollout of a peer comes in as text and leaves verification as a `VerifiedGroup`. A round of this node is a list of
`LocalGroup`. Imports `sapo_protocol` and the standard library alone, so that every process may import it.
"""
