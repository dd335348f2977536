"""Defences by name, and how a node goes without each: the undefended arm of every attack.

`defences` lists them, `replacements` and `stock` hold what stands in their place. Imports the node, the protocol and
`scoring`, and nothing of the simulator, which uses it:

    with without(["re-verification"]):
        ...
"""
