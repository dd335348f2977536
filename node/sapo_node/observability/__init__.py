"""Explanations, history, metrics and the page of a node, for people and scripts.

Reads what other rooms wrote, and decides nothing. `why` follows one rollout through `groups.book`.
"""
