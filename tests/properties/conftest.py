"""How many examples the property tests try: few in `make test`, more in `make nightly`, and as many as time allows with
HYPOTHESIS_PROFILE=thorough.

A thorough run outlasts the usual limit per test: `HYPOTHESIS_PROFILE=thorough pytest tests/properties --timeout 0`.
"""

import os
from contextlib import contextmanager

import pytest
from hypothesis import settings

settings.register_profile("few", deadline=None, derandomize=True, max_examples=12, stateful_step_count=30)
settings.register_profile("more", deadline=None, max_examples=100, stateful_step_count=40)
settings.register_profile("thorough", deadline=None, max_examples=10_000, stateful_step_count=50)
PROFILES = {"nightly": "more", "thorough": "thorough"}


@contextmanager
def profile():
    """The profile holds in this folder alone; other tests choose their own numbers."""
    before = settings.get_current_profile_name()
    settings.load_profile(PROFILES.get(os.environ.get("HYPOTHESIS_PROFILE", ""), "few"))
    yield
    settings.load_profile(before)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """`given` looks at the profile when a module is read."""
    with profile():
        return (yield)


@pytest.fixture(autouse=True, scope="module")
def _profile():
    """State machines look at it when they run."""
    with profile():
        yield
