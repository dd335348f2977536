"""Checks everything that a node needs on this machine. Each finding says what is wrong and what to do."""

import ctypes
import ipaddress
import json
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.config import AUTO, Config
from sapo_node.app.recipe import learner_options
from sapo_node.app.state import (
    StateFolder,
    epochs_ahead,
    is_running,
    read_database,
    reading,
    require_root,
    state_folder,
)
from sapo_node.cli.backup import RESTORING
from sapo_node.gossip.verdict import Verdict
from sapo_node.learner.client import require_installed
from sapo_node.net import addresses, port_mapping
from sapo_node.net.addresses import require_bootstrap
from sapo_node.net.interface import (
    BootstrapUnreachable,
    Channel,
    NetworkNotice,
    OtherSwarm,
    PeerConnected,
    Reachability,
)
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.pcp import NONCE_BYTES, MappingError
from sapo_node.net.settings import NetworkSettings
from sapo_node.observability.explain import moment
from sapo_node.observability.history import History
from sapo_node.storage.files import abandoned
from sapo_node.storage.keys import Identity, PassphraseNeeded, load_key, require_folder
from sapo_node.verification.catalogue import require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import LocalError, Manifest, evidence_topic, load_manifest
from sapo_protocol.files import NoSuchFile
from sapo_protocol.limits import MAX_EVIDENCE_BYTES

DISK_BAD, DISK_DOUBTFUL = 300 * 2**20, 2 * 2**30
"""Free bytes below which the disk is bad, and doubtful. The queues of a swarm like `starter` need up to DISK_BAD."""
LEARNER_SECONDS = 300.0
"""Seconds in which torch must start and the model must load. A slow disk takes minutes to read a large model."""
REACH_SECONDS = 15.0
"""Seconds in which a bootstrap peer must answer."""
_FORWARD = (
    "a node that dials other nodes needs no change. For other nodes to dial this one, forward a port of the router, "
    "give that port to --listen, and give the public address to --announce"
)
_TRIAL_SECONDS = 120
"""Lifetime of the mapping that `doctor` asks a router for, and removes."""
_TIME_ERROR = 5
"""The result of adjtimex(2) if nothing synchronises the clock."""


class State(StrEnum):
    """The result of a check in one word."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    state: State
    text: str
    advice: str = ""
    """The action that the operator should take; empty if none."""


def good(name: str, text: str) -> Finding:
    """Return a finding of a check that passed."""
    return Finding(name, State.GOOD, text)


def doubtful(name: str, text: str, advice: str) -> Finding:
    """Return a finding of a check that failed, although the node can run."""
    return Finding(name, State.DOUBTFUL, text, advice)


def bad(name: str, error: Exception, advice: str = "") -> Finding:
    """Return a finding of a check whose failure keeps the node from running or from training."""
    return Finding(name, State.BAD, str(error), advice)


async def examine(config: Config) -> AsyncGenerator[Finding, None]:
    """Yield each finding as soon as its check is done, slow checks last. Raises LocalError for an unreadable swarm."""
    manifest = load_manifest(config.swarm)
    begins = f"; it begins {moment(manifest.genesis)}" if manifest.genesis > time.time() else ""
    yield good("swarm", f"{manifest.name}, network {manifest.network_id.hex()[:16]}{begins}")
    yield _system()
    identity, finding = _key(Path(config.key))
    yield finding
    for finding in _state(config, manifest, identity):
        yield finding
    yield _clock()
    async for finding in check_addresses(config, _addresses(config, manifest, identity)):
        yield finding
    for finding in await trio.to_thread.run_sync(_learner, config, manifest):
        yield finding
    async for finding in _sandbox(config, manifest):
        yield finding
    for text in config.bootstrap:
        for finding in await check_bootstrap(text, manifest, config):
            yield finding


def _system() -> Finding:
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if platform.system() == "Linux" and platform.machine() in {"x86_64", "aarch64"}:
        return good("system", text)
    return doubtful(
        "system",
        text,
        "the sandbox needs Linux on x86-64 or aarch64; without a sandbox the node trains on local groups only",
    )


def _key(path: Path) -> tuple[Identity | None, Finding]:
    try:
        identity = load_key(path, None)
    except NoSuchFile:
        return None, _missing_key(path)
    except PassphraseNeeded:
        return None, good("key", f"{path} is encrypted; `doctor` does not ask for its passphrase")
    except LocalError as error:
        return None, bad("key", error)
    return identity, good("key", f"{path}, of {identity.peer_id}")


def _missing_key(path: Path) -> Finding:
    try:
        require_folder(path)
    except LocalError as error:
        return bad("key", error)
    return good("key", f"{path} does not exist yet; `sapo-node start` makes it")


def _state(config: Config, manifest: Manifest, identity: Identity | None) -> Iterator[Finding]:
    try:
        root = config.states
        require_root(root)
    except LocalError as error:
        yield bad("state", error)
        return
    there = next(each for each in (root, *root.absolute().parents) if _is_there(each))
    if not there.is_dir() or not os.access(there, os.W_OK):
        yield bad("state", LocalError(f"cannot write to the folder {there}"), "choose another --state")
        return
    free = shutil.disk_usage(there).free
    text = f"{root}, {free / 2**30:.1f} GiB free"
    if free < DISK_DOUBTFUL:
        state = State.BAD if free < DISK_BAD else State.DOUBTFUL
        yield Finding("disk", state, text, "free some space, or choose another --state")
    else:
        yield good("disk", text)
    if identity and _is_there((folder := state_folder(root, manifest, identity.peer_id)).path):
        if _is_there(folder.database):
            yield _database(folder, manifest)
        for left in abandoned(folder.path, RESTORING):
            yield doubtful(
                "leftover", f"{left} is of a `restore` that was killed", "remove it; the node never reads it"
            )


def _addresses(config: Config, manifest: Manifest, identity: Identity | None) -> tuple[str, ...]:
    """Return the addresses that the running node of this key and swarm announces; none if no node is running."""
    if identity is None or not config.state:
        return ()
    folder = state_folder(config.states, manifest, identity.peer_id)
    if not is_running(folder):
        return ()
    try:
        with reading(folder) as database:
            return tuple(History(database).session().get("addresses", ()))
    except LocalError:
        return ()  # the check of the state says what is wrong


def _is_there(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises in a folder that this user may not enter


def _database(folder: StateFolder, manifest: Manifest) -> Finding:
    try:
        with closing(read_database(folder)) as database:
            database.check()
            ahead = epochs_ahead(database, manifest, time.time())
    except LocalError as error:
        return bad("state", error)
    if ahead:
        return bad(
            "state",
            LocalError(f"{ahead} epochs ahead of the clock: peers refuse what this node publishes"),
            "if the clock is right, it was wrong before: stop the node and run `sapo-node doctor --repair`",
        )
    if is_running(folder):
        return good("state", "undamaged; a node is running on it, which `sapo-node status` shows")
    return good("state", "undamaged; no node is running on it")


def _clock() -> Finding:
    try:
        unset = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)) == _TIME_ERROR
    except (OSError, AttributeError):
        return doubtful(
            "clock", "cannot tell whether it is synchronised", "run an NTP service: epochs depend on the clock"
        )
    if unset:
        return doubtful(
            "clock",
            "the kernel says that nothing synchronises it",
            "run an NTP service: if the clock is 30 s off, peers refuse this node's rollouts",
        )
    return good("clock", "synchronised")


_ASK_LEARNER = """
import json, sys, torch
answers, sys.stdout = sys.stdout, sys.stderr  # libraries print to stdout, too
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
    model.require_room(options)
    needed = "fits anywhere" if options.model == "seed" else memory.require_memory(options)
    print(json.dumps([True, f"{model.load(options).name}, {needed}"]), file=answers)
except LocalError as error:
    print(json.dumps([False, str(error)]), file=answers)
"""


def _learner(config: Config, manifest: Manifest) -> tuple[Finding, ...]:
    """Check torch and, for a node that trains, the model.

    A child process imports torch, which takes a second and much memory.
    """
    try:
        require_installed()
    except LocalError as error:
        return (doubtful("learner", str(error), "without it the node can relay and contribute, but not train"),)
    try:
        asked = _model_options(config, manifest) if config.train else []
    except LocalError as error:
        return (bad("model", error),)
    # -P: the folder in which the user stands may be foreign, so no module is imported from it.
    script = [sys.executable, "-P", "-c", _ASK_LEARNER, *asked]
    try:
        done = subprocess.run(
            script, capture_output=True, text=True, errors="replace", check=False, timeout=LEARNER_SECONDS
        )
        told, why = done.stdout, (done.stderr.strip().splitlines() or ["it died"])[-1]
    except subprocess.TimeoutExpired as late:
        told, why = (late.stdout or b"").decode(errors="replace"), f"no answer within {LEARNER_SECONDS:g} s"
    answers = [json.loads(line) for line in told.splitlines()]
    if not answers:
        return (bad("learner", LocalError(f"torch does not start: {why}"), "install torch again; see the README"),)
    version, device = answers[0]
    learner = good("learner", f"torch {version} on {device}")
    if not config.train:
        return (learner,)
    is_usable, text = answers[1] if answers[1:] else (False, f"{config.model} cannot be loaded: {why}")
    return learner, good("model", text) if is_usable else bad("model", LocalError(text))


def _model_options(config: Config, manifest: Manifest) -> list[str]:
    """Return the options of the learner as JSON. Raises LocalError if there is no such model."""
    return [json.dumps(asdict(learner_options(config, manifest, StateFolder(Path(config.state)).checkpoints)))]


async def _sandbox(config: Config, manifest: Manifest) -> AsyncGenerator[Finding, None]:
    try:
        sandbox = Sandbox(manifest.tasks, config.files_of(manifest.tasks))
        async with trio.open_nursery() as nursery:
            await nursery.start(sandbox.run)
            finding = await _confinement(sandbox)
            tasks = await _tasks(manifest, sandbox)
            nursery.cancel_scope.cancel()
    except* LocalError as group:
        finding, tasks = bad("sandbox", group.exceptions[0]), None
    yield finding
    if tasks:
        yield tasks


async def _confinement(sandbox: Sandbox) -> Finding:
    if sandbox.confined:
        return good("sandbox", sandbox.describe())
    return Finding(
        "sandbox",
        State.BAD,
        sandbox.describe(),
        "the node will train on local groups only; --no-sandbox scores peers' text without a sandbox",
    )


async def _tasks(manifest: Manifest, sandbox: Sandbox) -> Finding:
    try:
        await require_catalogue(manifest, sandbox)
    except LocalError as error:
        return bad("tasks", error)
    return good("tasks", f"this node can build and score all {len(manifest.tasks)}")


async def check_addresses(config: Config, running: tuple[str, ...]) -> AsyncGenerator[Finding, None]:
    """Check whether the node can listen, and whether peers beyond the local network could dial it. `running` are the
    addresses of the node if it is running.
    """
    if running:
        yield good("listen", "the running node listens")
        yield _reachable(running)
        return
    try:
        listen = addresses.listening(config.listen)
        announce = tuple(addresses.parse_announce(text) for text in config.announce)
        addresses.check_port_free(listen)
        yield good("listen", ", ".join(listen))
    except addresses.PortBusyError as error:
        yield doubtful("listen", str(error), "do nothing if this node itself is running already")
    except LocalError as error:
        yield bad("listen", error)
        return
    if announce or config.network != AUTO or port_mapping.port_to_map(listen) is None:
        yield _reachable(announce or addresses.expand(listen))
    else:
        yield await check_router(port_mapping.ways_here(secrets.token_bytes(NONCE_BYTES)))


def _reachable(known: tuple[str, ...]) -> Finding:
    if any(ipaddress.ip_address(addresses.host_of(each)).is_global for each in known if _is_ip(each)):
        return good("reachable", f"announces {', '.join(known)}; only other machines can test whether they answer")
    return doubtful(
        "reachable", f"announces {', '.join(known)}; peers beyond the local network cannot dial these", _FORWARD
    )


async def check_router(ways: list[port_mapping.Ask]) -> Finding:
    """Ask the router to forward a port that no program uses, and remove the mapping again."""
    with socket.create_server(("", 0)) as unused:
        port = unused.getsockname()[1]
    try:
        mapping = await port_mapping.first_mapping(ways, port, _TRIAL_SECONDS)
    except MappingError as error:
        return doubtful(
            "reachable", f"the router forwards no port on request: {error}", f"turn on PCP or UPnP in it. {_FORWARD}"
        )
    await port_mapping.remove_mapping(ways, port)
    text = f"behind a router with the address {mapping.host}, which forwards ports by {mapping.by}"
    if ipaddress.ip_address(mapping.host).is_global:
        return good("reachable", f"{text}; the node will announce it")
    return doubtful("reachable", f"{text}; that address is private, so another router is in front of it", _FORWARD)


def _is_ip(place: str) -> bool:
    return place.split("/")[1] in {"ip4", "ip6"}


async def check_bootstrap(text: str, manifest: Manifest, config: Config) -> tuple[Finding, ...]:
    """Connect to a bootstrap peer, with a key that is made for this check only. Ask it how it sees this machine."""
    name = "bootstrap"
    try:
        require_bootstrap(text)
    except LocalError as error:
        return (bad(name, error),)
    told: list[NetworkNotice] = []
    met = trio.Event()

    def hear(notice: NetworkNotice) -> None:
        told.append(notice)
        if isinstance(notice, PeerConnected | OtherSwarm | BootstrapUnreachable):
            met.set()

    stranger = Identity(Ed25519PrivateKey.generate())
    settings = NetworkSettings(
        stranger.seed,
        manifest.network_id.hex(),
        listen=_free_listen(config),
        announce=config.announce,
        bootstrap=(text,),
        discover=False,
        map_port=False,
    )
    channels = {evidence_topic(manifest): Channel(_deaf, MAX_EVIDENCE_BYTES)}
    network = Libp2pNetwork(settings, stranger.peer_id, channels, admit=lambda _: True, notify=hear)
    since = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        with trio.move_on_after(REACH_SECONDS):
            await met.wait()
        answer = good(name, f"{text} answered within {trio.current_time() - since:.1f} s, and is in this swarm")
        peers = network.peers()
        ways = [await _way(network, peers[0].peer_id)] if peers else []
        nursery.cancel_scope.cancel()
    if peers:
        return (answer, *ways)
    causes = (each.cause if isinstance(each, BootstrapUnreachable) else str(each) for each in told)
    why = "; ".join(causes) or f"no answer within {REACH_SECONDS:g} s"
    return (bad(name, LocalError(f"{text}: {why}"), "check that it runs, that its port is open, and its peer id"),)


def _free_listen(config: Config) -> tuple[str, ...]:
    """Return the addresses to listen on, or loopback if they cannot be used: the node itself may be running."""
    try:
        addresses.check_port_free(addresses.listening(config.listen))
    except LocalError:
        return ("/ip4/127.0.0.1/tcp/0",)
    return config.listen


async def _way(network: Libp2pNetwork, peer_id: str) -> Finding:
    """Ask a peer whether it can dial this machine, and find out what the router does with ports."""
    try:
        found = await network.reachability(peer_id)
    except LocalError as error:
        return doubtful("way in", str(error), "try another bootstrap peer")
    return way_in(found)


def way_in(found: Reachability) -> Finding:
    """Say how other nodes can connect to this machine."""
    name, asked = "way in", " and ".join(found.asked)
    if found.dialled:
        return good(name, f"the bootstrap peer dialled this machine at {asked}")
    silent = f"; it cannot dial {asked}" if asked else ""
    seen = f"the bootstrap peer sees this machine at {found.seen}{silent}"
    if addresses.parts_of(found.seen)["tcp"] == str(found.local_port):
        return good(name, f"{seen}; the router keeps ports, so nodes behind other such routers can connect to this one")
    return doubtful(
        name,
        f"{seen}; the router takes another port than this machine ({found.local_port}), so at that address a node "
        "behind a router can connect to this one only if its router lets everybody in",
        "rollouts also travel through peers that both nodes have dialled; " + _FORWARD,
    )


async def _deaf(_sender: str, _data: bytes) -> Verdict:
    return Verdict.IGNORE
