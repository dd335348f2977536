"""Child processes of a node: how they start, how frames of bytes reach them, and how they end with their parent.

Imports the standard library and trio alone. The sandbox and the learner are such processes.
"""
