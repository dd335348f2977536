"""What a person or a script sees of a node: explanations, history, metrics, and the dashboard.

Reads what other rooms wrote, and decides nothing. `why` follows one rollout through `groups.book`.
"""
