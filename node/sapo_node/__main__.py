"""`python -m sapo_node` is `sapo-node`."""

from sapo_node.cli.entry import main

main()
