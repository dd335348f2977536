"""A message that the node forwards is signed as StrictSign wants it, in every field. Some libraries take other messages
and some refuse them, and charge the peer that forwarded them.
"""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sapo_node.gossip.rpc import Message
from sapo_node.gossip.signing import is_strictly_signed, may_be_taken_elsewhere, signed_bytes
from virtual_gossip import TOPIC, Attacker, World

PADDING = bytes(700_000)


@pytest.fixture
def mallory():
    return Attacker(World())


def by_the_identity():
    """A message whose author is the neutral point of the curve, of which anybody can make a signature: S = 1, R = B."""
    author = bytes.fromhex("0024080112200100000000000000000000000000000000000000000000000000000000000000")
    message = Message(data=b"m", topics=[TOPIC], author=author, seqno=bytes(8))
    message.signature = bytes.fromhex("58" + "66" * 31 + "01" + "00" * 31)
    Ed25519PublicKey.from_public_bytes(author[-32:]).verify(message.signature, signed_bytes(message))  # OpenSSL does
    return message


ELSEWHERE = {
    "the key of another peer": lambda mallory: mallory.message(b"m", key=bytes.fromhex("08011220") + bytes(32)),
    "a key and more": lambda mallory: mallory.message(b"m", key=mallory.message(b"m").key + PADDING),
    "an author of small order": lambda _: by_the_identity(),
    "no number": lambda mallory: mallory.message(b"m", seqno=b""),
    "a long number": lambda mallory: mallory.message(b"m", seqno=PADDING),
}
NOWHERE = {
    "a bad signature": {"signature": bytes(64)},
    "another author": {"author": Attacker(World(), 201).author.identity},
    "an author whose key must come with it": {"author": b"\x12\x20" + bytes(32), "key": b"\xff" * 40},
    "no author": {"author": b""},
    "other data": {"data": b"n"},
    "another topic": {"topics": [b"t"]},
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_a_message_that_some_libraries_take_is_not_forwarded_and_charged_to_nobody(kind, mallory):
    message = ELSEWHERE[kind](mallory)
    assert not is_strictly_signed(message)
    assert may_be_taken_elsewhere(message)


@pytest.mark.parametrize("kind", NOWHERE)
def test_a_message_that_no_library_takes_is_charged(kind, mallory):
    message = mallory.message(b"m")
    assert is_strictly_signed(message)
    for name, value in NOWHERE[kind].items():
        if isinstance(value, list):
            message.ClearField(name)
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    assert not is_strictly_signed(message)
    assert not may_be_taken_elsewhere(message)


def test_the_key_may_be_missing_as_its_author_names_it(mallory):
    message = mallory.message(b"m")
    message.ClearField("key")
    assert is_strictly_signed(message)


def test_our_own_messages_are_signed_so_with_growing_numbers(mallory):
    first, second = (mallory.author.signed(TOPIC, b"m") for _ in range(2))
    assert is_strictly_signed(first)
    assert first.seqno < second.seqno
