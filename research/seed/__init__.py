"""Builds the seed policy of the node, and the policies of other shapes that experiments use, from generated tasks.

`python -m research.seed build` writes a policy, and `measure` shows what GRPO makes of it. `research.policies`
uses the same lessons.
"""
