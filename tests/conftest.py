"""Values that many tests start from."""

import gc
import hashlib
import os
import signal
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, settings

from sapo_protocol import (
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    Manifest,
    encode_body,
    encode_header,
    encode_message,
    load_manifest,
    seal,
)

# A shell has what it starts in the background ignore Ctrl-C, and each process of a test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until all tests are collected
# The tests expect the numbers of a CPU. test_cuda.py gives its process the GPU back.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# A busy machine makes any test slow. `make nightly` tries more examples.
settings.register_profile("quick", deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", settings.get_profile("quick"), max_examples=100)
settings.load_profile("nightly" if os.environ.get("HYPOTHESIS_PROFILE") else "quick")


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """End the fork servers and wait for them, so that their CPU time counts as that of the tests."""
    processes = sys.modules.get("processes")
    if processes and processes.fork_servers.cache_info().currsize:
        processes.fork_servers().end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for real processes comes first: quick files then fill the gaps, and no worker works on alone."""
    items.sort(key=lambda item: "processes" not in item.path.parts)


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Runs a command line in this process, since a new one takes a second: its exit code, and what it printed."""

    def run(main, *arguments):
        monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
        try:
            main()
        except SystemExit as ended:
            return ended.code or 0, capsys.readouterr()
        raise AssertionError("a command line ends by an exit")

    return run


@pytest.fixture
def forked_children(monkeypatch):
    """Learners that code under test starts come from a fork server, without the seconds that their imports take."""
    from processes import fork_servers

    monkeypatch.setattr(sys, "executable", str(fork_servers().python))


@pytest.fixture
def memory_folder():
    """A folder in memory, where thousands of files are made in no time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


@dataclass(frozen=True)
class Author:
    """A key, and the messages it can sign in one swarm."""

    key: Ed25519PrivateKey
    manifest: Manifest

    @property
    def issuer(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    def body(self, text: str = "I think so. <answer>1</answer>") -> Body:
        return Body(tuple(Completion((text,), Finish.STOP) for _ in range(self.manifest.completions)))

    def header(self, bodies: list[bytes], *, epoch: int = 0, counter: int = 0) -> Header:
        claims = tuple(k % 2 == 0 for k in range(self.manifest.completions))
        groups = tuple(GroupHeader(bytes(32), claims, hashlib.sha256(body).digest()) for body in bodies)
        return Header(epoch, counter, groups)

    def envelope(self, header: Header) -> bytes:
        return self.envelope_of(encode_header(header))

    def envelope_of(self, payload: bytes) -> bytes:
        return seal(payload, issuer=self.issuer, sign=self.key.sign, network_id=self.manifest.network_id)

    def message(self, *, epoch: int = 0, counter: int = 0, text: str = "so: <answer>1</answer>") -> bytes:
        bodies = [encode_body(self.body(text))]
        return encode_message(self.envelope(self.header(bodies, epoch=epoch, counter=counter)), tuple(bodies))


@pytest.fixture(scope="session")
def manifest() -> Manifest:
    """The starter swarm on a clock that begins at 0, with 600 rounds an epoch."""
    return replace(load_manifest("starter"), genesis=0, max_rounds=600)


@pytest.fixture
def author(manifest: Manifest) -> Author:
    return Author(Ed25519PrivateKey.from_private_bytes(bytes(range(32))), manifest)


@pytest.fixture
def other_author(manifest: Manifest) -> Author:
    return Author(Ed25519PrivateKey.from_private_bytes(bytes(32)), manifest)
