"""The limits of one gossip RPC, and what the node removes from its control messages."""

from typing import Any

import pytest
from libp2p.pubsub.pb import rpc_pb2
from sapo_node.net.router import excess_of, sanitise

from sapo_node.net import router

TOPIC = "/sapo/2/" + "ab" * 32 + "/rollouts/0"


def rpc(kind: str, count: int) -> Any:
    """An RPC with so many parts of a kind."""
    made = rpc_pb2.RPC()
    control = made.control
    for number in range(count):
        match kind:
            case "messages":
                made.publish.add(data=b"%d" % number)
            case "subscriptions":
                made.subscriptions.add(subscribe=True, topicid=str(number))
            case "GRAFT":
                control.graft.add(topicID=TOPIC)
            case "PRUNE":
                control.prune.add(topicID=TOPIC)
            case "IHAVE":
                control.ihave.add(topicID=TOPIC)
            case "IWANT":
                control.iwant.add()
    if kind == "bytes of peer record":
        made.senderRecord = bytes(count)
    if kind == "offered ids":
        control.ihave.add(topicID=TOPIC, messageIDs=[bytes(32)] * count)
    if kind == "wanted ids":
        control.iwant.add(messageIDs=[bytes(32)] * count)
    return made


LIMITS = {
    "messages": router.PUBLISHES,
    "subscriptions": router.SUBSCRIPTIONS,
    "bytes of peer record": router.RECORD_BYTES,
    **dict.fromkeys(("GRAFT", "PRUNE", "IHAVE", "IWANT"), router.CONTROLS),
    "offered ids": router.OFFERED_IDS,
    "wanted ids": router.WANTED_IDS,
}


@pytest.mark.parametrize("kind", LIMITS)
def test_an_rpc_with_one_part_more_than_its_limit_is_in_excess(kind: str) -> None:
    assert excess_of(rpc(kind, LIMITS[kind])) == ""
    assert excess_of(rpc(kind, LIMITS[kind] + 1)) == f"{LIMITS[kind] + 1} {kind} in one RPC"


def test_a_control_message_keeps_only_our_topics_and_no_address() -> None:
    control = rpc_pb2.ControlMessage()
    for topic in (TOPIC, "unknown"):
        control.graft.add(topicID=topic)
        control.ihave.add(topicID=topic)
        control.prune.add(topicID=topic, backoff=2**62, peers=[rpc_pb2.PeerInfo(peerID=b"\xff" * 9)])
    control.idontwant.add(messageIDs=[bytes(32)])
    sanitise(control, {TOPIC})
    assert [each.topicID for kind in (control.graft, control.ihave, control.prune) for each in kind] == [TOPIC] * 3
    assert (list(control.prune[0].peers), control.prune[0].backoff) == ([], router.BACKOFF_SECONDS)
    assert list(control.idontwant) == []
