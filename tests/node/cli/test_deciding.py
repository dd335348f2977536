"""`trust`, `untrust`, `ban`, `unban` and lists of peers: what the commands do to a state, and what they say."""

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

PEER, OTHER, EQUIVOCATOR, LIAR = (peer_id(bytes([n]) * 32) for n in (1, 2, 3, 4))


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
    assert machine.does("ban", PEER, "--why", "spam")["why"] == "spam"
    assert machine.state(PEER) == ("banned", "command")
    assert machine.does("unban", PEER)["state"] == "untrusted"
    assert machine.state(PEER) is None, "nothing else is known of it"


@pytest.mark.parametrize(("again", "why"), [((), "spam"), (("--why", ""), ""), (("--why", "lies"), "lies")])
def test_a_ban_that_is_said_again_keeps_its_words_unless_it_has_new_ones(machine, again, why):
    machine.does("ban", PEER, "--why", "spam")
    assert machine.does("ban", PEER, *again)["why"] == why


def test_a_ban_does_not_take_the_words_of_a_trust(machine):
    machine.does("trust", PEER, "--why", "our node in Lyon")
    assert machine.does("ban", PEER)["why"] == ""


def test_a_ban_of_an_id_with_a_line_end_behind_it_is_refused_and_bans_nobody_else(machine):
    assert "sapo-node peers" in machine.fails("ban", PEER + "\r")
    assert machine.state(PEER) is None


def test_a_trust_and_its_end(machine):
    assert machine.does("trust", PEER)["tier"] == "friend"
    machine.starts()
    assert machine.state(PEER) == ("healthy", "command")
    assert machine.does("untrust", PEER)["tier"] == "stranger"


@pytest.mark.parametrize("part", [slice(-8, None), slice(None, 20)], ids=["end", "beginning"])
def test_a_part_of_a_known_id_is_enough(machine, part):
    machine.does("ban", PEER)
    assert machine.does("unban", PEER[part])["peer"] == PEER


def test_unban_ends_a_ban_for_offences_on_probation(machine):
    assert machine.state(LIAR) == ("banned", "evidence")
    assert machine.does("unban", LIAR)["state"] == "probation"
    assert machine.state(LIAR) == ("probation", "evidence")


def test_what_a_command_says_to_a_person_is_what_who_and_how_to_take_it_back(machine, run_here):
    _, said = run_here(main, "ban", PEER, "--why", "spam", *machine.where)
    assert "by `sapo-node ban`: spam." in said.out
    assert "until `sapo-node unban PEER`" in said.out


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
    assert said in machine.fails(command, peer or machine.identity.peer_id)


@pytest.mark.parametrize(
    ("named", "command"),
    [("banned", "unban"), ("banned", "trust"), ("trusted", "untrust")],
)
def test_what_the_configuration_says_is_taken_back_there(machine, named, command):
    machine.starts(**{named: [PEER]})
    assert f"remove it from `{named}` there" in machine.fails(command, PEER)


def test_a_ban_holds_although_the_configuration_trusts(machine):
    machine.starts(trusted=[PEER])
    machine.does("ban", PEER)
    assert machine.starts(trusted=[PEER]).state(PEER) == ("banned", "command")
    machine.does("unban", PEER)
    assert machine.state(PEER) == ("healthy", "config")


def test_long_words_are_refused(machine):
    assert "at most 200" in machine.fails("ban", PEER, "--why", "x" * 201)


def test_a_node_without_a_state_has_nothing_to_decide_in(tmp_path, run_here):
    create_key(tmp_path / "node.key")
    code, said = run_here(main, "ban", PEER, "--key", tmp_path / "node.key", "--state", tmp_path / "none")
    assert code == 1
    assert "sapo-node start" in said.err


@pytest.fixture
def follower(tmp_path, run_here):
    (tmp_path / "other").mkdir()
    return Machine(tmp_path / "other", run_here).starts()


def test_a_list_passes_decisions_from_node_to_node_and_back_out(machine, follower, tmp_path):
    signer, file = machine.identity.peer_id, tmp_path / "list.json"
    machine.starts(trusted=[OTHER])
    machine.does("ban", PEER, "--why", "spam")
    assert machine.does("peers", "export", file)["trusted"] == 1
    assert follower.does("peers", "import", file, "--from", signer)["banned"] == 1
    assert (follower.state(PEER), follower.state(OTHER)) == (("banned", signer), ("healthy", signer))
    assert "take it out there" in follower.fails("unban", PEER)
    assert follower.does("peers", "export", tmp_path / "own.json")["banned"] == 0, "a list is not passed on"
    machine.does("unban", PEER)
    machine.does("peers", "export", file)
    follower.does("peers", "import", file, "--from", signer)
    assert follower.state(PEER) is None


def test_unban_takes_back_the_ban_of_the_operator_although_a_list_bans_the_peer_too(machine, follower, tmp_path):
    signer, file = machine.identity.peer_id, tmp_path / "list.json"
    for each in (machine, follower):
        each.does("ban", PEER)
    machine.does("peers", "export", file)
    follower.does("peers", "import", file, "--from", signer)
    told = follower.does("unban", PEER)
    assert (told["state"], told["decided_by"]) == ("banned", signer)
    assert "take it out there" in follower.fails("unban", PEER)


def test_unban_takes_back_no_trust_of_the_operator_where_a_list_bans_the_peer(machine, follower, tmp_path):
    signer, file = machine.identity.peer_id, tmp_path / "list.json"
    machine.does("ban", PEER)
    machine.does("peers", "export", file)
    follower.does("trust", PEER)
    follower.does("peers", "import", file, "--from", signer)
    assert "take it out there" in follower.fails("unban", PEER)
    machine.does("unban", PEER)
    machine.does("peers", "export", file)
    follower.does("peers", "import", file, "--from", signer)
    assert follower.state(PEER) == ("healthy", "command")


def test_a_node_refuses_its_own_list(machine, tmp_path):
    machine.does("ban", PEER)
    machine.does("peers", "export", tmp_path / "list.json")
    said = machine.fails("peers", "import", tmp_path / "list.json", "--from", machine.identity.peer_id)
    assert "import it on your other nodes" in said
    assert machine.does("unban", PEER)["state"] == "untrusted"


def test_a_list_of_another_signer_than_the_named_one_is_refused(machine, follower, tmp_path):
    file = tmp_path / "list.json"
    machine.does("peers", "export", file)
    assert f"not by {PEER}" in follower.fails("peers", "import", file, "--from", PEER)


def test_the_words_of_a_list_are_shown_as_its_signer_wrote_them(machine, follower, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words, file = "[link=https://evil.example]see[/link] [/nothing] :warning:", tmp_path / "list.json"
    machine.does("ban", PEER, "--why", words)
    machine.does("peers", "export", file)
    follower.does("peers", "import", file, "--from", machine.identity.peer_id)
    assert words in follower.prints("peers")


def test_evidence_is_shown_by_a_part_of_an_id(machine):
    said = machine.fails("peers", LIAR[-8:], "--evidence")
    assert f"no evidence against {LIAR}" in said


def test_a_script_gives_the_passphrase_of_the_key_in_the_environment(tmp_path, run_here, monkeypatch):
    machine = Machine(tmp_path, run_here, passphrase="secret").starts()
    assert "SAPO_NODE_PASSPHRASE" in machine.fails("peers", "export", tmp_path / "list.json")
    monkeypatch.setenv("SAPO_NODE_PASSPHRASE", "secret")
    assert machine.does("peers", "export", tmp_path / "list.json")["signer"] == machine.identity.peer_id
    monkeypatch.setenv("SAPO_NODE_PASSPHRASE", "wrong")
    assert "does not open" in machine.fails("peers")
