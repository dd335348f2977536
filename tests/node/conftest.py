"""What the tests of the node start from."""

import random

import pytest

from context import KEY
from sapo_node.app.state import SCHEMA
from sapo_node.storage.database import Database
from validator_parts import ValidatorParts


@pytest.fixture
def database():
    return Database(None, SCHEMA)


@pytest.fixture
def rng():
    return random.Random(7)


@pytest.fixture
def validator_of(database, manifest, rng):
    """The validator of the node that holds a given key."""

    def of(key):
        return ValidatorParts(database, manifest, rng, key)

    return of


@pytest.fixture
def validator(validator_of):
    """The validator of a node whose key nobody else has."""
    return validator_of(KEY)
