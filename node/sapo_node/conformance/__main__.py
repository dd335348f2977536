"""`python -m sapo_node.conformance` is the node's own reader."""

from sapo_node.conformance.reader import main

main()
