"""Checks the addresses of a node and its bootstrap peers, for `sapo-node doctor`."""

import ipaddress
from collections.abc import Iterator

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.config import Config
from sapo_node.cli.findings import Finding, bad, doubtful, good
from sapo_node.net import addresses
from sapo_node.net.addresses import require_bootstrap
from sapo_node.net.interface import BootstrapUnreachable, Channel, NetworkNotice, OtherSwarm, PeerConnected, Verdict
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_node.storage.keys import Identity
from sapo_protocol import LocalError, Manifest, evidence_topic
from sapo_protocol.limits import MAX_EVIDENCE_BYTES

REACH_SECONDS = 15.0
"""Seconds in which a bootstrap peer must answer."""


def check_addresses(config: Config, running: tuple[str, ...]) -> Iterator[Finding]:
    """Check whether the node can listen, and whether peers beyond the local network could dial it. `running` are the
    addresses of the node if it is running.
    """
    if running:
        yield good("listen", f"the running node listens; its port is in {running[0]}")
        yield _reachable(running)
        return
    try:
        listen = tuple(addresses.parse_listen(text) for text in config.listen)
        announce = tuple(addresses.parse_announce(text) for text in config.announce)
        addresses.check_port_free(listen)
        yield good("listen", ", ".join(listen))
    except addresses.PortBusyError as error:
        yield doubtful("listen", str(error), "do nothing if this node itself is running already")
    except LocalError as error:
        yield bad("listen", error)
        return
    yield _reachable(announce or addresses.expand(listen))


def _reachable(known: tuple[str, ...]) -> Finding:
    if any(ipaddress.ip_address(addresses.host_of(each)).is_global for each in known if _is_ip(each)):
        return good("reachable", f"announces {', '.join(known)}; only other machines can test whether they answer")
    return doubtful(
        "reachable",
        f"announces {', '.join(known)}; peers beyond the local network cannot dial these",
        "a node that dials other nodes needs no change. For other nodes to dial this one, forward a port of the "
        "router, give that port to --listen, and give the public address to --announce",
    )


def _is_ip(place: str) -> bool:
    return place.split("/")[1] in {"ip4", "ip6"}


async def check_bootstrap(text: str, manifest: Manifest) -> Finding:
    """Connect to a bootstrap peer, with a key that is made for this check only."""
    name = "bootstrap"
    try:
        require_bootstrap(text)
    except LocalError as error:
        return bad(name, error)
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
        return good(name, f"{text} answered within {trio.current_time() - since:.1f} s, and is in this swarm")
    causes = (each.cause if isinstance(each, BootstrapUnreachable) else str(each) for each in told)
    why = "; ".join(causes) or f"no answer within {REACH_SECONDS:g} s"
    return bad(name, LocalError(f"{text}: {why}"), "check that it runs, that its port is open, and its peer id")


async def _deaf(_sender: str, _data: bytes) -> Verdict:
    return Verdict.IGNORE
