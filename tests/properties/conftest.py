"""How many examples the property tests try: few in `make test`, many with HYPOTHESIS_PROFILE=thorough.

A thorough run outlasts the usual limit per test: `HYPOTHESIS_PROFILE=thorough pytest tests/properties --timeout 0`.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("quick", deadline=None, derandomize=True, max_examples=30, stateful_step_count=30)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=10_000,
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture(autouse=True, scope="module")
def _profile():
    """The profile holds in this folder alone; other tests choose their own numbers."""
    before = settings.get_current_profile_name()
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
    yield
    settings.load_profile(before)
