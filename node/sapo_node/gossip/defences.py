"""The defences of gossip. A node uses `DEFENDED`; an ablation switches one off."""

from dataclasses import dataclass

GOSSIP_STREAMS = 4  # that one peer may hold open; an honest peer needs one


@dataclass(frozen=True, slots=True)
class GossipDefences:
    """The defences of gossip. The default of each is what a node uses."""

    flood_publishing: bool = True
    """True if own messages go to all peers that follow their topic, and not only to the mesh."""
    gossip_repair: bool = True
    """True if the node offers its latest messages to peers outside of its mesh."""
    dialled_mesh_peers: bool = True
    """True if the mesh always has some peers that this node dialled."""
    scored_mesh: bool = True
    """True if only peers with a score of at least 0 join the mesh and stay in it."""
    control_caps: bool = True
    """True if the node limits the control messages that it accepts from a peer, and its answers to them."""
    gossip_streams: int = GOSSIP_STREAMS


DEFENDED = GossipDefences()
"""All defences: what a node uses."""
