"""Poison in correct answers: what re-verification cannot see (rows 29 to 34, and 37)."""
