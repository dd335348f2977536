"""The settings and the defences of one node's network.

A node uses `NETWORK_DEFENDED`. An ablation passes other `NetworkDefences` in `NetworkSettings`. Without a defence the
network does what GossipSub 1.1 and py-libp2p do. `sapo_node.trust.defences` holds the defences of trust.
"""

from dataclasses import dataclass, field

from sapo_node.gossip.defences import GossipDefences
from sapo_node.net import addresses
from sapo_node.net.interface import KnownPeer

FRAME_SECONDS = 20.0  # for one RPC, from its first byte to its last; 50 kB/s for the largest
STREAMS = 32  # that one peer may hold open, over all protocols
RESERVED_OUTBOUND = 8  # connections that inbound peers cannot take
NAMED = 3  # peers that one peer named and that this node has not connected to yet
WRONG = 3  # failed dials to such peers, after which the peer that named them is ignored as a source for 600 s


@dataclass(frozen=True, slots=True)
class NetworkDefences(GossipDefences):
    """The defences of a network. The default of each is what a node uses."""

    frame_seconds: float = FRAME_SECONDS

    # host, inbound, service
    streams: int = STREAMS
    reserved_outbound: int = RESERVED_OUTBOUND
    eviction: bool = True
    """True if a new inbound connection takes the slot of the least useful one, and idle connections are closed."""
    only_ours_dial: bool = True
    """True if only the node's own dialer dials, and not the library."""
    records_checked: bool = True
    """True if the node dials, and tells others, an address in a peer's record only after a feeler proved it."""

    # dialer and address book
    anchors: bool = True
    """True if the node dials its anchors after a restart."""
    named: int = NAMED
    wrong: int = WRONG


NETWORK_DEFENDED = NetworkDefences()
"""All defences: what a node uses."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings of one node's network. Addresses are multiaddresses as the operator wrote them."""

    seed: bytes = field(repr=False)
    """The 32 secret bytes of our Ed25519 key."""
    network_id: str
    """Hexadecimal."""
    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0")
    announce: tuple[str, ...] = ()
    """Announced in place of the addresses that are found on this machine."""
    bootstrap: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    """Peers that served this node before its restart. Like `bootstrap`, but a lost anchor is not reported."""
    known: tuple[KnownPeer, ...] = ()
    """Peers that answered this node before its restart. They are dialled as any peer of the address book."""
    discover: bool = True
    """True if to find nodes of the same swarm on the LAN and on this machine by mDNS."""
    map_port: bool = True
    """True if to ask the router to forward the listening port, unless `announce` names addresses."""
    defences: NetworkDefences = NETWORK_DEFENDED

    def require_usable(self) -> None:
        """Raise AddressError for an address that cannot be used, and PortBusyError for a port that is taken."""
        addresses.require_addresses(self.listen, self.announce, self.bootstrap)
        addresses.check_port_free(addresses.listening(self.listen))
