"""Poison in correct completions: they earn their reward, so re-verification cannot see it."""
