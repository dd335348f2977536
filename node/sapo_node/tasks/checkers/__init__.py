"""Checkers decide by the rules of a puzzle, so that every correct solution counts and not only the reference.

Rules:
- A checker takes the puzzle from the prompt or the metadata, which this node rebuilt itself.
- It accepts the forms in which people write such an answer, and it is strict on the value.
- It never evaluates an answer as code. It reads one pass over at most 4,096 characters.
"""
