"""Defences by name, and how a node is built without each: the undefended arm of every attack.

`defences` lists them, `replacements` and `stock` hold what stands in their place. Nothing is replaced in a running
process: a node gets other values at its construction. Imports the node, the protocol, `attacks` and `scoring`, and
nothing of the simulator, which uses it:

    undefended = ablated(["re-verification"])
    Node(..., defences=undefended.defences)
"""
