"""What the tests of the node start from."""

import random

import pytest

from context import KEY
from sapo_node.app.state import SCHEMA
from sapo_node.storage.database import Database
from sapo_protocol import TaskSpec, load_manifest, shipped_manifests
from shared_sandbox import running_sandbox
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


@pytest.fixture(scope="session")
def _running():
    shipped = [task for name in shipped_manifests() for task in load_manifest(name).tasks]
    with running_sandbox([*shipped, TaskSpec("lcm", {}, 1)]) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(_running):
    """A running sandbox, which other tests use, too."""
    _running.failures.clear()
    return _running
