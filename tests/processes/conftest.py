"""The nodes of these tests, and the learners that they start, come from fork servers."""

import pytest


@pytest.fixture(autouse=True)
def _forked(forked_children):
    pass
