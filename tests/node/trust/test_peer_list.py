"""Lists of peers: what one node decided, signed, and followed by another."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.storage.keys import Identity
from sapo_node.trust import peer_list
from sapo_node.trust.constants import PeerState
from sapo_node.trust.decisions import COMMAND, Decision, decide
from sapo_node.trust.ledger import account_of
from sapo_node.trust.peer_list import MAX_PEERS, import_list, read_list, write_list
from sapo_protocol import LocalError, peer_id

SIGNER = Identity(Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32))
FRIEND, SPAMMER, SELF = (peer_id(bytes([n]) * 32) for n in (2, 3, 4))
DECISIONS = [
    Decision(FRIEND, PeerState.HEALTHY, COMMAND, 10.0, "in Lyon"),
    Decision(SPAMMER, PeerState.BANNED, COMMAND, 20.0, "spam"),
]


def follow(database, decisions, *, made=100):
    import_list(database, read_list(write_list(decisions, SIGNER, made=made), "l"), own=SELF)


def test_a_list_reads_as_it_was_written():
    listed = read_list(write_list(DECISIONS, SIGNER, made=100), "l")
    assert (listed.signer, listed.made) == (SIGNER.peer_id, 100)
    assert [(each.peer, each.state, each.since, each.why) for each in listed.decisions] == [
        (each.peer, each.state, each.since, each.why) for each in DECISIONS
    ]
    assert {each.source for each in listed.decisions} == {SIGNER.peer_id}


def change(**changes):
    return lambda table: table | changes


def change_peer(**changes):
    return lambda table: table | {"peers": [table["peers"][0] | changes, *table["peers"][1:]]}


MUTATIONS = {
    "another state": change_peer(state="banned"),
    "another peer": change_peer(peer=SELF),
    "other words": change_peer(why="in Paris"),
    "another time of one": change_peer(since=11),
    "a peer less": lambda table: table | {"peers": table["peers"][1:]},
    "another order": lambda table: table | {"peers": table["peers"][::-1]},
    "another time": change(made=101),
    "another signer": change(signer=FRIEND),
    "another signature": change(signature="00" * 64),
    "a short signature": change(signature="00"),
    "no signature": lambda table: {name: value for name, value in table.items() if name != "signature"},
    "another format": change(format="sapo-node/peers/2"),
    "one key more": change(note="x"),
    "a key more of one": change_peer(note="x"),
    "a state that nobody decides": change_peer(state="probation"),
    "no peer id": change_peer(peer="x"),
    "a number for a peer": change_peer(peer=7),
    "words that turn a line around": change_peer(why="\u202eparis"),
    "a number for a signer": change(signer=7),
    "long words": change_peer(why="x" * 201),
    "a fraction of a second": change(made=1.5),
    "a time that is a truth": change(made=True),
    "no table": lambda table: [table],
    "peers in a table": lambda table: table | {"peers": {}},
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_list_that_was_changed_is_refused(name):
    table = json.loads(write_list(DECISIONS, SIGNER, made=100))
    with pytest.raises(LocalError, match=r"friends\.json is not"):
        read_list(json.dumps(MUTATIONS[name](table)).encode(), "friends.json")


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b"{}", b"null"])
def test_noise_is_no_list(data):
    with pytest.raises(LocalError, match="is not a list"):
        read_list(data, "noise")


@pytest.mark.timeout(20)  # to decode so long a text takes hours
def test_a_signer_of_two_million_characters_is_refused():
    table = json.loads(write_list(DECISIONS, SIGNER, made=100))
    with pytest.raises(LocalError, match="is not a list"):
        read_list(json.dumps(table | {"signer": "z" * 2_000_000}).encode(), "long")


def test_a_signature_for_another_purpose_signs_no_list(monkeypatch):
    monkeypatch.setattr(peer_list, "DOMAIN", "Signature1")
    other = json.loads(write_list(DECISIONS, SIGNER, made=100))
    monkeypatch.undo()
    with pytest.raises(LocalError, match="is not what"):
        read_list(json.dumps(other | {"format": peer_list.DOMAIN}).encode(), "other")


def test_too_many_decisions_are_not_written():
    with pytest.raises(LocalError, match="at most"):
        write_list(DECISIONS * MAX_PEERS, SIGNER, made=100)


def test_a_newer_list_replaces_all_of_an_older_one(database):
    follow(database, DECISIONS)
    assert account_of(database, SPAMMER).state is PeerState.BANNED
    follow(database, DECISIONS[:1], made=101)
    assert account_of(database, SPAMMER).state is PeerState.UNTRUSTED
    assert account_of(database, FRIEND).decision.why == "in Lyon"


def test_an_older_list_is_refused_and_changes_nothing(database):
    follow(database, DECISIONS)
    with pytest.raises(LocalError, match="older"):
        follow(database, [], made=99)
    assert account_of(database, FRIEND).state is PeerState.HEALTHY


def test_a_list_takes_no_decision_back_that_a_command_made(database):
    decide(database, Decision(FRIEND, PeerState.BANNED, COMMAND, 5.0))
    follow(database, DECISIONS)
    follow(database, [], made=101)
    assert account_of(database, FRIEND).decision.source == COMMAND


def test_what_a_list_says_of_the_node_itself_is_left_out(database):
    follow(database, [Decision(SELF, PeerState.BANNED, COMMAND)])
    assert account_of(database, SELF).decision is None
