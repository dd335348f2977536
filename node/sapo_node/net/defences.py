"""The defences of a node's network, as one value that is passed at construction.

A node uses `NETWORK_DEFENDED`. An ablation passes another value in `NetworkSettings`; without a defence, the network
does what py-libp2p does. `sapo_node.trust.defences` is the same for trust.
"""

from dataclasses import dataclass

FRAME_SECONDS = 20.0  # for one RPC, from its first byte to its last; 50 kB/s for the largest
GOSSIP_STREAMS = 4  # that one peer may hold open; an honest peer needs one
STREAMS = 32  # that one peer may hold open, over all protocols
RESERVED_OUTBOUND = 8  # connections that inbound peers cannot take
NAMED = 3  # peers that one peer named and that this node has not connected to yet
WRONG = 3  # failed dials to such peers, after which the peer that named them is ignored as a source for 600 s


@dataclass(frozen=True, slots=True)
class NetworkDefences:
    """The defences of a network. The default of each is what a node uses."""

    # gossipsub
    flood_publishing: bool = True
    """Whether own messages go to all peers that follow their topic, and not only to the mesh."""
    gossip_repair: bool = True
    """Whether the node also offers messages to peers in back-off."""
    dialled_mesh_peers: bool = True
    """Whether the mesh always has some peers that this node dialled."""

    # router
    scored_mesh: bool = True
    """Whether only peers with a score of at least 0 join the mesh and stay in it."""
    control_caps: bool = True
    """Whether the node limits the control messages that it accepts from a peer, and its answers to them."""

    # pubsub
    frame_seconds: float = FRAME_SECONDS
    gossip_streams: int = GOSSIP_STREAMS
    no_peer_exchange: bool = True
    """Whether the node removes addresses, and topics that it does not follow, from control messages."""

    # host, inbound, service
    streams: int = STREAMS
    reserved_outbound: int = RESERVED_OUTBOUND
    eviction: bool = True
    """Whether a new inbound connection takes the slot of the least useful one, and idle connections are closed."""
    only_ours_dial: bool = True
    """Whether only the node's own dialer dials, and not the library."""
    records_checked: bool = True
    """Whether the node uses an address in a peer's record only if the peer is connected from there."""

    # dialer and address book
    anchors: bool = True
    """Whether the node dials its anchors after a restart."""
    named: int = NAMED
    wrong: int = WRONG


NETWORK_DEFENDED = NetworkDefences()
"""All defences: what a node uses."""
