"""How far one swarm reaches: what gossip costs each node, and how fast it is, by the number of peers.

One message at a time goes through a mesh of thousands of peers that is made as nodes make theirs; what it costs a node
is counted from that, by the CPU seconds that real nodes were measured to take. `overlay` makes the mesh, `spread` sends
the messages, `cost` adds up.
"""
