"""`python -m sapo_node` is `sapo-node`."""

from sapo_node.entry import main

main()
