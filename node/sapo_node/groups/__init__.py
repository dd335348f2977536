"""Groups of completions, verified and local, and the book that holds every group of this node with its state.

Verification makes a `VerifiedGroup` from each group of a peer's rollout. A round of this node is a list of
`LocalGroup`. `book` is the only writer of both. All other modules are values and pure functions of one group, which
the learner's process imports, too.
"""
