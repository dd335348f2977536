"""Scorers decide whether an answer is correct, or which share of it is right. Each module scores one kind of answer.

Rules:
- A scorer takes the puzzle from the reference, the prompt or the metadata, which this node rebuilt itself.
- It sees an answer of at most 4,096 characters without its wrappers (`wrappers.stages`), and compares all of it.
- It accepts the forms in which people write such an answer, and it is strict on the value. Where a puzzle has several
  solutions, each earns as much as the reference.
- It parses text with small grammars of ASCII digits, within milliseconds. It never evaluates text as code.
- It never calls reasoning-gym's scorers: nine of those execute the answer, and most reward incorrect answers.
"""
