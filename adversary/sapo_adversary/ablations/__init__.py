"""Defences by name, and how a node is built without each: the undefended arm of every attack.

`defences` lists them; `replacements` and `stock` hold the parts of a node without them. Nothing is replaced in a
running process: `build_node` gets the parts. Imports the node, the protocol, `attacks` and `scoring`, and
nothing of the simulator, which uses it:

    undefended = ablated(["re-verification"])
    build_node(..., parts=undefended.parts)
"""
