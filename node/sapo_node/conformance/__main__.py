"""`python -m sapo_node.conformance` answers the requests of the driver with this node's implementation."""

from sapo_node.conformance.reader import main

main()
