"""Builds the seed policy of the node, and the policies of other shapes that experiments use, from generated tasks.

`python -m sapo_adversary.seed build` writes a policy, and `measure` shows what GRPO makes of it. Imports `sapo_node`
alone; `research.policies` and the simulator use it.
"""
