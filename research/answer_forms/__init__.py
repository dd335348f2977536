"""Counts the forms of correct answers that the scorers accept, and the incorrect answers.

`right` writes the correct value of an item in the forms that people and models use. `wrong` writes values near it, and
texts that hold it beside another. `measure` has both scored, by this version and by an older one.
"""
