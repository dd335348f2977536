"""`peers trust`, `untrust`, `ban` and `unban`: what the commands do to a state, and what they say."""

import json
from contextlib import closing

import pytest

from sapo_node.app.state import SCHEMA, state_folder
from sapo_node.cli.main import main
from sapo_node.storage.database import Database
from sapo_node.storage.keys import create_key
from sapo_node.trust.constants import Fact
from sapo_node.trust.ledger import Ledger
from sapo_protocol import Equivocation, load_manifest, peer_id

PEER, EQUIVOCATOR, LIAR = (peer_id(bytes([n]) * 32) for n in (1, 3, 4))


class Machine:
    """A key with the state of a node that has run, and the commands on it."""

    def __init__(self, folder, run_here, *, passphrase=None):
        self._run = run_here
        self.identity = create_key(folder / "node.key", passphrase)
        self.where = ("--key", folder / "node.key", "--state", folder / "state")
        place = state_folder(folder / "state", load_manifest("starter"), self.identity.peer_id)
        place.path.mkdir(parents=True)
        self.file = place.database

    def starts(self, **named):
        """What a start does to the state."""
        with closing(Database(self.file, SCHEMA)) as database:
            ledger = Ledger(database, epoch=5, **named)
            ledger.ban(Equivocation(bytes([3]) * 32, 1, 2, b"two envelopes"))
            for _ in range(4):
                ledger.report(LIAR, Fact.FALSE_CLAIM)
        return self

    def does(self, *command):
        """What a command that succeeds prints as JSON."""
        code, said = self._run(main, *command, "--json", *self.where)
        assert code == 0, said.err
        return json.loads(said.out)

    def prints(self, *command):
        """What a command that succeeds prints for a person."""
        code, said = self._run(main, *command, *self.where)
        assert code == 0, said.err
        return said.out

    def fails(self, *command):
        """What a command that fails says."""
        code, said = self._run(main, *command, *self.where)
        assert code == 1
        return said.err

    def state(self, peer):
        return {each["peer"]: (each["state"], each["decided_by"]) for each in self.does("peers")}.get(peer)


@pytest.fixture
def machine(tmp_path, run_here):
    return Machine(tmp_path, run_here).starts()


def test_a_ban_and_its_end(machine):
    assert machine.does("peers", "ban", PEER, "--why", "spam")["why"] == "spam"
    assert machine.state(PEER) == ("banned", "command")
    assert machine.does("peers", "unban", PEER)["state"] == "untrusted"
    assert machine.state(PEER) is None, "nothing else is known of it"


@pytest.mark.parametrize(("again", "why"), [((), "spam"), (("--why", ""), ""), (("--why", "lies"), "lies")])
def test_a_ban_that_is_said_again_keeps_its_words_unless_it_has_new_ones(machine, again, why):
    machine.does("peers", "ban", PEER, "--why", "spam")
    assert machine.does("peers", "ban", PEER, *again)["why"] == why


def test_a_ban_does_not_take_the_words_of_a_trust(machine):
    machine.does("peers", "trust", PEER, "--why", "our node in Lyon")
    assert machine.does("peers", "ban", PEER)["why"] == ""


def test_a_ban_of_an_id_with_a_line_end_behind_it_is_refused_and_bans_nobody_else(machine):
    assert "sapo-node peers" in machine.fails("peers", "ban", PEER + "\r")
    assert machine.state(PEER) is None


def test_a_trust_and_its_end(machine):
    assert machine.does("peers", "trust", PEER)["tier"] == "friend"
    machine.starts()
    assert machine.state(PEER) == ("healthy", "command")
    assert machine.does("peers", "untrust", PEER)["tier"] == "stranger"


@pytest.mark.parametrize("part", [slice(-8, None), slice(None, 20)], ids=["end", "beginning"])
def test_a_part_of_a_known_id_is_enough(machine, part):
    machine.does("peers", "ban", PEER)
    assert machine.does("peers", "unban", PEER[part])["peer"] == PEER


def test_unban_ends_a_ban_for_offences_on_probation(machine):
    assert machine.state(LIAR) == ("banned", "evidence")
    assert machine.does("peers", "unban", LIAR)["state"] == "probation"
    assert machine.state(LIAR) == ("probation", "evidence")


def test_what_a_command_says_to_a_person_is_what_who_and_how_to_take_it_back(machine, run_here):
    _, said = run_here(main, "peers", "ban", PEER, "--why", "spam", *machine.where)
    assert "by `sapo-node peers ban`: spam." in said.out
    assert "until `sapo-node peers unban PEER`" in said.out


REFUSED = {
    "the node itself": ("ban", None, "is this node itself"),
    "a part of no known id": ("ban", "abcdef", "no peer begins or ends with 'abcdef'"),
    "an equivocator trusted": ("trust", EQUIVOCATOR, "stays banned whatever you trust"),
    "an equivocator unbanned": ("unban", EQUIVOCATOR, "that ban never ends"),
    "no ban": ("unban", PEER, "is not banned"),
    "no trust": ("untrust", PEER, "is not trusted by a decision of yours"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_decided_says_why(machine, case):
    command, peer, said = REFUSED[case]
    assert said in machine.fails("peers", command, peer or machine.identity.peer_id)


@pytest.mark.parametrize(
    ("named", "command"),
    [("banned", "unban"), ("banned", "trust"), ("trusted", "untrust")],
)
def test_what_the_configuration_says_is_taken_back_there(machine, named, command):
    machine.starts(**{named: [PEER]})
    assert f"remove it from `{named}` there" in machine.fails("peers", command, PEER)


def test_a_ban_holds_although_the_configuration_trusts(machine):
    machine.starts(trusted=[PEER])
    machine.does("peers", "ban", PEER)
    assert machine.starts(trusted=[PEER]).state(PEER) == ("banned", "command")
    machine.does("peers", "unban", PEER)
    assert machine.state(PEER) == ("healthy", "config")


def test_long_words_are_refused(machine):
    assert "at most 200" in machine.fails("peers", "ban", PEER, "--why", "x" * 201)


def test_a_node_without_a_state_has_nothing_to_decide_in(tmp_path, run_here):
    create_key(tmp_path / "node.key")
    code, said = run_here(main, "peers", "ban", PEER, "--key", tmp_path / "node.key", "--state", tmp_path / "none")
    assert code == 1
    assert "sapo-node start" in said.err


def test_evidence_is_shown_by_a_part_of_an_id(machine):
    said = machine.fails("peers", LIAR[-8:], "--evidence")
    assert f"no evidence against {LIAR}" in said


def test_a_script_gives_the_passphrase_of_the_key_in_the_environment(tmp_path, run_here, monkeypatch):
    machine = Machine(tmp_path, run_here, passphrase="secret").starts()
    assert "SAPO_NODE_PASSPHRASE" in machine.fails("peers")
    monkeypatch.setenv("SAPO_NODE_PASSPHRASE", "secret")
    assert machine.state(LIAR) == ("banned", "evidence")
    monkeypatch.setenv("SAPO_NODE_PASSPHRASE", "wrong")
    assert "does not open" in machine.fails("peers")
