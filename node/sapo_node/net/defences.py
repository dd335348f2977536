"""What a node's network defends itself with, as one value that is handed in at construction.

As `sapo_node.trust.defences`, for libp2p: a network is built with `NETWORK_DEFENDED`, and whoever measures what a
defence is worth gives `NetworkSettings` another value. Without one the node does what py-libp2p does by itself.
"""

from dataclasses import dataclass

FRAME_SECONDS = 20.0  # for one RPC, from its first byte to its last; 50 kB/s for the largest
GOSSIP_STREAMS = 4  # one peer may hold open; honest ones need one
STREAMS = 32  # of one peer, over all protocols
RESERVED_OUTBOUND = 8  # of all connections, kept free of whoever dials us
NAMED = 3  # peers that one peer named and that were not met yet
WRONG = 3  # failed dials among those peers, after which the peer that named them is ignored as a source for a while


@dataclass(frozen=True, slots=True)
class NetworkDefences:
    """The defences of a network; the default of each is what a node does."""

    # gossipsub
    flood_publishing: bool = True
    """Whether own messages go to all who follow their topic, beyond the mesh."""
    gossip_repair: bool = True
    """Whether peers in back-off are offered messages too."""
    dialled_mesh_peers: bool = True
    """Whether some mesh peers are ones that this node dialled."""

    # router
    scored_mesh: bool = True
    """Whether the score of a peer decides whether it comes into the mesh and stays there."""
    control_caps: bool = True
    """Whether the control messages of a peer are counted and answered a little at a time."""

    # pubsub
    frame_seconds: float = FRAME_SECONDS
    gossip_streams: int = GOSSIP_STREAMS
    no_peer_exchange: bool = True
    """Whether addresses in a PRUNE, and whatever concerns other topics, are removed from control messages."""

    # host, inbound, service
    streams: int = STREAMS
    reserved_outbound: int = RESERVED_OUTBOUND
    only_ours_dial: bool = True
    """Whether the library dials nobody by itself."""
    records_checked: bool = True
    """Whether addresses in a peer's record count only where the peer is connected from."""

    # dialer
    anchors: bool = True
    """Whether peers that served well before a restart are dialled again."""
    named: int = NAMED
    wrong: int = WRONG


NETWORK_DEFENDED = NetworkDefences()
"""A network as it is."""
