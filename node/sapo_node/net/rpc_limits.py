"""Limits what one gossip RPC may hold, and removes from it what must not reach the router.

These limits are apart from the budget of a link (`link_budget`): an RPC above one is wrong by itself, however seldom
the peer sends one.
"""

from collections.abc import Collection
from typing import Any

# Limits of one RPC. Honest RPCs stay far below: a heartbeat offers only the messages of the last three seconds.
PUBLISHES = 64
SUBSCRIPTIONS = 64
RECORD_BYTES = 8192
CONTROLS = 64  # of each kind
OFFERED_IDS = 512
WANTED_IDS = 64  # each can make this node send a whole message
BACKOFF_SECONDS = 600  # the longest time for which a peer can keep this node out of its mesh


def excess_of(rpc: Any) -> str:
    """The first count of an RPC above its limit, as text; empty if none is."""
    control = rpc.control
    counts = (
        ("messages", len(rpc.publish), PUBLISHES),
        ("subscriptions", len(rpc.subscriptions), SUBSCRIPTIONS),
        ("bytes of peer record", len(rpc.senderRecord), RECORD_BYTES),
        ("IHAVE", len(control.ihave), CONTROLS),
        ("IWANT", len(control.iwant), CONTROLS),
        ("GRAFT", len(control.graft), CONTROLS),
        ("PRUNE", len(control.prune), CONTROLS),
        ("offered ids", sum(len(ihave.messageIDs) for ihave in control.ihave), OFFERED_IDS),
        ("wanted ids", sum(len(iwant.messageIDs) for iwant in control.iwant), WANTED_IDS),
    )
    return next((f"{found} {what} in one RPC" for what, found, cap in counts if found > cap), "")


def sanitise(control: Any, topics: Collection[str]) -> None:
    """Remove from a control message the topics that this node does not follow, and all addresses.

    The router keeps a back-off for each topic of a control message for ever, and it dials every address that a PRUNE
    names.
    """
    for kind in (control.ihave, control.graft, control.prune):
        kept = [item for item in kind if item.topicID in topics]
        del kind[:]
        kind.extend(kept)
    for prune in control.prune:
        del prune.peers[:]
        prune.backoff = min(prune.backoff, BACKOFF_SECONDS)
    del control.idontwant[:]  # belongs to a gossipsub version that this node does not speak
