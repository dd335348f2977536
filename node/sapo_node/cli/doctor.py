"""Looks at everything that a node needs, and says of each thing what is wrong with it and what to do."""

import ctypes
import ipaddress
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.config import Config
from sapo_node.app.learner_options import learner_options
from sapo_node.app.state import StateFolder, is_running, read_database, state_folder
from sapo_node.net import addresses, listening
from sapo_node.net.interface import BootstrapUnreachable, Channel, NetworkNotice, OtherSwarm, PeerConnected, Verdict
from sapo_node.net.libp2p import Libp2pNetwork, NetworkSettings
from sapo_node.storage.keys import Identity, PassphraseNeeded, load_key
from sapo_node.verification.compatibility import require_catalogue
from sapo_node.verification.sandbox import Sandbox
from sapo_protocol import LocalError, Manifest, evidence_topic, load_manifest
from sapo_protocol.files import NoSuchFile
from sapo_protocol.limits import MAX_EVIDENCE_BYTES

DISK_BAD, DISK_DOUBTFUL = 300 * 2**20, 2 * 2**30
"""Bytes free: what a starter swarm's inbox can need at worst, and what leaves room for checkpoints."""
REACH_SECONDS = 15.0
LEARNER_SECONDS = 300.0
"""For torch to start and the model to load: a large one takes minutes from a slow disk."""
_TIME_ERROR = 5
"""What adjtimex(2) returns of a clock that nothing keeps in step."""


class State(StrEnum):
    """How a thing is."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing."""

    name: str
    state: State
    text: str
    advice: str = ""
    """What to do, where anything should be done."""


def _good(name: str, text: str) -> Finding:
    return Finding(name, State.GOOD, text)


def _doubtful(name: str, text: str, advice: str) -> Finding:
    return Finding(name, State.DOUBTFUL, text, advice)


def _bad(name: str, error: Exception, advice: str = "") -> Finding:
    return Finding(name, State.BAD, str(error), advice)


async def examine(config: Config) -> AsyncIterator[Finding]:
    """All findings, as they are made; the slow ones last. Raises LocalError for a swarm that cannot be read."""
    manifest = load_manifest(config.swarm)
    yield _good("swarm", f"{manifest.name}, network {manifest.network_id.hex()[:16]}")
    yield _system()
    identity, finding = _key(Path(config.key))
    yield finding
    for finding in _state(config, manifest, identity):
        yield finding
    yield _clock()
    for finding in _places(config):
        yield finding
    for finding in await trio.to_thread.run_sync(_learner, config, manifest):
        yield finding
    async for finding in _sandbox(manifest):
        yield finding
    for text in config.bootstrap:
        yield await _bootstrap(text, manifest)


def _system() -> Finding:
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if platform.system() == "Linux" and platform.machine() in {"x86_64", "aarch64"}:
        return _good("system", text)
    return _doubtful(
        "system",
        text,
        "peers' text can be confined on Linux only, on x86-64 and aarch64: elsewhere a node learns alone",
    )


def _key(path: Path) -> tuple[Identity | None, Finding]:
    try:
        identity = load_key(path, None)
    except NoSuchFile:
        return None, _good("key", f"{path} is not there yet; `sapo-node start` makes it")
    except PassphraseNeeded:
        return None, _good("key", f"{path} has a passphrase, which this look does without")
    except LocalError as error:
        return None, _bad("key", error)
    return identity, _good("key", f"{path}, of {identity.peer_id}")


def _state(config: Config, manifest: Manifest, identity: Identity | None) -> Iterator[Finding]:
    root = Path(config.state)
    there = next(each for each in (root, *root.absolute().parents) if _is_there(each))
    if not there.is_dir() or not os.access(there, os.W_OK):
        yield _bad("state", LocalError(f"{there} is no folder that can be written"), "choose another --state")
        return
    free = shutil.disk_usage(there).free
    text = f"{root}, {free / 2**30:.1f} GiB free"
    if free < DISK_DOUBTFUL:
        state = State.BAD if free < DISK_BAD else State.DOUBTFUL
        yield Finding("disk", state, text, "free some, or choose another --state")
    else:
        yield _good("disk", text)
    if identity and _is_there((folder := state_folder(root, manifest, identity.peer_id)).database):
        yield _database(folder)


def _is_there(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises in a folder that this user may not enter


def _database(folder: StateFolder) -> Finding:
    try:
        with closing(read_database(folder)) as database:
            database.check()
    except LocalError as error:
        return _bad("state", error)
    if is_running(folder):
        return _good("state", "undamaged; a node is running on it: `sapo-node status` tells how it does")
    return _good("state", "undamaged, and no node runs on it")


def _clock() -> Finding:
    try:
        unset = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)) == _TIME_ERROR
    except (OSError, AttributeError):
        return _doubtful(
            "clock", "cannot find out whether anything keeps it in step", "see that it does: epochs hang on it"
        )
    if unset:
        return _doubtful(
            "clock",
            "nothing keeps it in step, says the kernel",
            "run an NTP service: 30 s off, and peers refuse rollouts",
        )
    return _good("clock", "kept in step")


def _places(config: Config) -> Iterator[Finding]:
    try:
        listen = tuple(addresses.parse_listen(text) for text in config.listen)
        announce = tuple(addresses.parse_announce(text) for text in config.announce)
        listening.check_port_free(listen)
        yield _good("listen", ", ".join(listen))
    except listening.PortBusyError as error:
        yield _doubtful("listen", str(error), "nothing, if it is this node that runs already")
    except LocalError as error:
        yield _bad("listen", error)
        return
    known = announce or listening.expand(listen)
    if any(ipaddress.ip_address(addresses.host_of(each)).is_global for each in known if _is_ip(each)):
        yield _good("reachable", f"announces {', '.join(known)}; whether they can be dialled only others can tell")
    else:
        yield _doubtful(
            "reachable",
            f"announces {', '.join(known)}: nobody beyond the local network can dial these",
            "fine where this node dials others. To be dialled, forward a port, listen on it, and --announce the "
            "address under which the world sees it",
        )


def _is_ip(place: str) -> bool:
    return place.split("/")[1] in {"ip4", "ip6"}


_ASK_LEARNER = """
import json, sys, torch
answers, sys.stdout = sys.stdout, sys.stderr  # libraries print what they like
cuda = torch.cuda.is_available()
device = torch.cuda.get_device_name(0) if cuda else "Apple MPS" if torch.backends.mps.is_available() else "the CPU"
print(json.dumps([torch.__version__, device]), file=answers, flush=True)
if len(sys.argv) == 1:
    sys.exit()
from sapo_node.groups import messages
from sapo_node.learner import memory, model
from sapo_protocol import LocalError
try:
    options = messages.LearnerOptions(**json.loads(sys.argv[1]))
    needed = "fits anywhere" if options.model == "seed" else memory.require_memory(options)
    print(json.dumps([True, f"{model.load(options).name}, {needed}"]), file=answers)
except LocalError as error:
    print(json.dumps([False, str(error)]), file=answers)
"""


def _learner(config: Config, manifest: Manifest) -> tuple[Finding, ...]:
    """What is found of torch, and of the model where one is trained.

    In a process of its own: torch takes a second and much memory.
    """
    try:
        options = learner_options(config, manifest, StateFolder(Path(config.state)))
    except LocalError as error:
        return (_doubtful("learner", str(error), "relaying and contributing work without"),)
    script = [sys.executable, "-c", _ASK_LEARNER, *([json.dumps(asdict(options))] if config.train else [])]
    try:
        done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=LEARNER_SECONDS)
        told, why = done.stdout, (done.stderr.strip().splitlines() or ["it died"])[-1]
    except subprocess.TimeoutExpired as late:
        told, why = (late.stdout or b"").decode(), f"no answer within {LEARNER_SECONDS:g} s"
    answers = [json.loads(line) for line in told.splitlines()]
    if not answers:
        return (_bad("learner", LocalError(f"torch does not start: {why}"), "install it again; see the README"),)
    version, device = answers[0]
    learner = _good("learner", f"torch {version} on {device}")
    if not config.train:
        return (learner,)
    is_usable, text = answers[1] if answers[1:] else (False, f"{config.model} cannot be loaded: {why}")
    return learner, _good("model", text) if is_usable else _bad("model", LocalError(text))


async def _sandbox(manifest: Manifest) -> AsyncIterator[Finding]:
    sandbox = Sandbox()
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(sandbox.run)
            finding = await _confinement(sandbox)
            tasks = await _tasks(manifest, sandbox)
            nursery.cancel_scope.cancel()
    except* LocalError as group:
        finding, tasks = _bad("sandbox", group.exceptions[0]), None
    yield finding
    if tasks:
        yield tasks


async def _confinement(sandbox: Sandbox) -> Finding:
    if sandbox.confined:
        return _good("sandbox", sandbox.describe())
    return Finding(
        "sandbox",
        State.BAD,
        sandbox.describe(),
        "the node will learn alone; --no-sandbox scores others' text all the same",
    )


async def _tasks(manifest: Manifest, sandbox: Sandbox) -> Finding:
    try:
        await require_catalogue(manifest, sandbox)
    except LocalError as error:
        return _bad("tasks", error)
    return _good("tasks", f"all {len(manifest.tasks)} can be built and scored here")


async def _bootstrap(text: str, manifest: Manifest) -> Finding:
    """Meet it as a stranger would, under a key that is thrown away."""
    name = "bootstrap"
    try:
        addresses.parse_dial(text)
    except LocalError as error:
        return _bad(name, error)
    told: list[NetworkNotice] = []
    met = trio.Event()

    def hear(notice: NetworkNotice) -> None:
        told.append(notice)
        if isinstance(notice, PeerConnected | OtherSwarm | BootstrapUnreachable):
            met.set()

    stranger = Identity(Ed25519PrivateKey.generate())
    settings = NetworkSettings(
        stranger.seed, manifest.network_id.hex(), listen=("/ip4/127.0.0.1/tcp/0",), bootstrap=(text,), discover=False
    )
    channels = {evidence_topic(manifest): Channel(_deaf, MAX_EVIDENCE_BYTES)}
    network = Libp2pNetwork(settings, stranger.peer_id, channels, admit=lambda _: True, notify=hear)
    since = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        with trio.move_on_after(REACH_SECONDS):
            await met.wait()
        is_member = bool(network.peers())
        nursery.cancel_scope.cancel()
    if is_member:
        return _good(name, f"{text} answers within {trio.current_time() - since:.1f} s, and is in this swarm")
    why = "; ".join(map(str, told)) or f"no answer within {REACH_SECONDS:g} s"
    return _bad(name, LocalError(f"{text}: {why}"), "is it running, is its port open, is the peer id right?")


async def _deaf(_sender: str, _data: bytes) -> Verdict:
    return Verdict.IGNORE
