"""The cost of gossip for each node, and its speed, by the number of peers.

One message at a time goes through a mesh of thousands of peers, which is made by the rules of nodes. The cost of a node
is estimated from it and from the CPU seconds that real nodes were measured to take. `overlay` makes the mesh, `spread`
sends the messages, `company` finds peers, `cost` adds up.
"""
