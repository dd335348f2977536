"""What the tests of the node start from."""

import random

import pytest

from sapo_node.database import Database
from sapo_node.state import SCHEMA


@pytest.fixture
def database():
    return Database(None, SCHEMA)


@pytest.fixture
def rng():
    return random.Random(7)
