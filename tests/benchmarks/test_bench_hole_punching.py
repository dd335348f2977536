"""Two peers that nobody can dial reach each other by py-libp2p's hole punching, with a relay that both can reach."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import air
from processes import ENVIRONMENT

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(bool(air.missing()), reason=air.missing() or "nothing is missing"),
]

HOST = Path(__file__).with_name("hidden_host.py")
SUPPORT = str(Path(air.__file__).parent)
ATTEMPTS = 3
PATIENCE = 120.0


def started(stack, place, port, *arguments):
    """A host in its subnet, and the address that it says first."""
    process = subprocess.Popen(
        [*place.prefix, sys.executable, str(HOST), place.address, str(port), *arguments],
        env=ENVIRONMENT | {"PYTHONPATH": SUPPORT},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("attempt", range(ATTEMPTS))
def test_two_hidden_peers_punch_a_hole(attempt):
    with air.Air(delay=0.05, loss=0.0, seed=attempt) as between, ExitStack() as stack:
        open_place, *hidden = between.place("relay"), between.place("b", hidden=True), between.place("a", hidden=True)
        _, relay = started(stack, open_place, 4001)
        _, waiting = started(stack, hidden[0], 4002, relay)
        caller, _ = started(stack, hidden[1], 4003, relay, waiting)
        said, _ = caller.communicate(timeout=PATIENCE)
        print("", said.replace("\n", "; "), flush=True)
    assert "directly: False" in said
    assert "answer: ok" in said
