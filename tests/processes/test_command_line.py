"""The commands as a user meets them: what they print, what they refuse, and how they say so."""

import json
import os
import pty
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from processes import ENVIRONMENT, PATIENCE, RunningProcess, sapo_node, write_swarm
from sapo_node.app.config import SETTINGS
from sapo_node.app.state import SCHEMA, locked, state_folder
from sapo_node.cli.commands.options import Option
from sapo_node.cli.main import cli, main
from sapo_node.observability.stored import METRICS
from sapo_node.storage.database import Database
from sapo_node.storage.keys import create_key
from sapo_protocol import load_manifest

COMMANDS = [
    *(name for name in cli.list_commands(None) if name not in {"model", "peers", "rollouts", "state", "task"}),
    *("model fetch", "model eval", "model export"),
    *("peers show", "peers trust", "peers untrust", "peers ban", "peers unban"),
    *("rollouts export", "rollouts verify", "rollouts push", "state backup", "state restore"),
    *("task list", "task show", "task check", "task file"),
]
"""All but `model chat`, whose answers are for people."""


@pytest.mark.parametrize("program", ["sapo-node", "sapo-adversary"])
def test_an_installed_command_starts(program):
    """All other commands come from a fork server."""
    path = Path(sysconfig.get_path("scripts")) / program
    if not path.exists():
        pytest.skip("the package is not installed in this environment")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    assert version("sapo-node") in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run_here, command):
    code, told = run_here(main, *command.split(), "--help")
    assert code == 0
    assert "--json" in told.out
    assert len(told.out.splitlines()) > 6


@pytest.mark.parametrize("command", ["start", "init", "doctor"])
def test_a_command_with_many_options_shows_them_in_sections(run_here, command):
    _, told = run_here(main, command, "--help")
    headings = [line for line in told.out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", "Node:", "Model:", "Training:", "Peers:", "Network:", "Output:"]


def options():
    """Each option of each command that a setting stands behind."""
    for name in cli.list_commands(None):
        command = cli.get_command(None, name)
        for each in [command, *getattr(command, "commands", {}).values()]:
            for param in each.params:
                if isinstance(param, Option) and param.name in SETTINGS and param.section != "Options":
                    yield each.name, param


@pytest.mark.parametrize(("command", "option"), options(), ids=str)
def test_an_option_of_a_setting_says_what_the_setting_says(command, option):
    row = SETTINGS[option.name]
    assert option.help.startswith(row.help)
    assert option.section == row.section
    assert (option.multiple, option.default in (None, ())) == (row.kind is tuple, True)


def test_the_help_names_first_what_a_newcomer_needs(run_here):
    _, told = run_here(main, "--help")
    first = told.out.partition("First steps:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in first.splitlines()] == ["demo", "init", "start", "status", "doctor"]


def test_there_are_few_commands_and_their_help_fits_into_80_columns(run_here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, told = run_here(main, "--help")
    assert len(cli.list_commands(None)) <= 18
    assert max(map(len, told.out.splitlines())) <= 80
    assert "..." not in told.out.partition("First steps:")[2]


@pytest.fixture
def ran(run_here, monkeypatch):
    """Runs a command in this process: its exit code, and what it printed for a terminal of 120 columns."""
    monkeypatch.setenv("COLUMNS", "120")
    return partial(run_here, main)


@pytest.fixture
def told(ran):
    """What a command printed that ended well."""

    def of(*arguments):
        code, printed = ran(*arguments)
        assert code == 0, printed
        return printed.out

    return of


def test_keygen_prints_the_peer_id_and_never_overwrites(tmp_path, ran, told):
    key = tmp_path / "node.key"
    made = json.loads(told("keygen", "--key", key, "--json"))
    assert made["peer_id"].startswith("12D3KooW")
    assert "never overwritten" in one_line_error(*ran("keygen", "--key", key))


def test_config_prints_a_file_that_start_and_config_accept(tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    file = Path("node.toml")
    file.write_text(told("config"))
    assert told("config", file) == file.read_text()


def one_line_error(code, printed):
    assert code == 1, printed
    lines = printed.err.strip().splitlines()
    assert lines[-1].startswith("error:"), printed.err
    assert "Traceback" not in printed.err
    return lines[-1]


def test_an_unknown_swarm_names_those_there_are_and_no_key_is_made_for_it(tmp_path, ran):
    assert "starter" in one_line_error(*ran("start", "--swarm", "nowhere", "--key", tmp_path / "k"))
    assert not (tmp_path / "k").exists()


def test_no_key_is_made_where_the_state_cannot_be_kept(tmp_path, run_here):
    (tmp_path / "file").write_text("")
    places = ("--key", tmp_path / "node.key", "--state", tmp_path / "file")
    for command in (("start", "--no-train"), ("contribute", "--endpoint", "http://127.0.0.1:9", "--model", "m")):
        code, said = run_here(main, *command, "--network", "manual", *places)
        assert code == 1
        assert "choose another --state" in said.err
    assert not (tmp_path / "node.key").exists()


def test_a_damaged_key_is_not_to_be_replaced_unless_its_owner_wants_to_begin_anew(tmp_path, ran):
    (tmp_path / "k").write_text("not a key")
    (tmp_path / "k").chmod(0o600)
    refused = one_line_error(*ran("start", "--key", tmp_path / "k", "--state", tmp_path))
    assert "is damaged: restore your copy" in refused
    assert refused.endswith("move it away and create a new key, which peers see as a new node")
    assert (tmp_path / "k").read_text() == "not a key"


TOO_LONG = "a" * 300
"""No system has a file of such a name. To look for it fails, as it does in a folder that the user may not enter."""
BAD_INPUT = {
    "a model that cannot be looked for": (["start", "--model", TOO_LONG], f"cannot use {TOO_LONG}: File name too long"),
    "an export that cannot be looked for": (
        ["model", "export", TOO_LONG],
        f"cannot use {TOO_LONG}: File name too long",
    ),
    "a new configuration that cannot be looked for": (["init", TOO_LONG], f"cannot use {TOO_LONG}: File name too long"),
    "a backup into no folder": (["state", "backup", "nowhere/x.tar"], "cannot write the backup nowhere/x.tar"),
    "a backup below a file": (["state", "backup", "file/x.tar"], "cannot write the backup file/x.tar"),
    "a backup of a swarm that was not joined": (["state", "backup", "x.tar", "--swarm", "interop"], "sapo-node start"),
    "a restore from a folder": (["state", "restore", "folder"], "not a backup"),
    "a restore from a pipe": (["state", "restore", "pipe", "--swarm", "interop"], "not a backup"),
    "a key that is a folder": (["status", "--key", "folder"], "is a folder, not a key file"),
    "a key that is a pipe": (["status", "--key", "pipe"], "not a key file"),
    "a new key below a file": (["keygen", "--key", "file/k"], "file is not a folder"),
    "a key that is a link to nowhere": (["start", "--key", "link"], "link to nowhere"),
    "a manifest that is a pipe": (["manifest", "./pipe"], "not a manifest"),
    "a manifest of nested lists": (["manifest", "nested"], "not valid TOML"),
    "a manifest of a huge number": (["manifest", "number"], "not valid TOML"),
    "a manifest that would steer the terminal": (["manifest", "evil\x1b[2J\u202e"], r"evil\x1b[2J\u202e"),
    "an encoded manifest below a file": (["manifest", "--encoded", "file/x"], "cannot write file/x"),
    "a configuration that is a device": (["config", "/dev/zero"], "not a configuration"),
    "a message that is a pipe": (["verify", "pipe"], "not a message"),
    "a message that is too large": (["verify", "huge"], "larger than 1,000,000 bytes"),
    "evidence that is too large": (["verify", "--evidence", "huge"], "larger than 4,096 bytes"),
}


@pytest.fixture(scope="module")
def odd_files(tmp_path_factory):
    """A folder with a state, and with files that no command can use."""
    folder = tmp_path_factory.mktemp("odd")
    identity = create_key(folder / "node.key")
    state = state_folder(folder / "state", load_manifest("starter"), identity.peer_id)
    with locked(state):
        Database(state.database, SCHEMA).close()
    (folder / "folder").mkdir()
    (folder / "file").write_text("")
    os.mkfifo(folder / "pipe", 0o600)
    (folder / "link").symlink_to("nowhere")
    (folder / "nested").write_text("x = " + "[" * 3_000)
    (folder / "number").write_text("x = " + "1" * 5_000)
    (folder / "huge").write_bytes(bytes(1_000_001))
    return folder


@pytest.mark.parametrize(("arguments", "reason"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_is_one_line_that_says_what_is_wrong(odd_files, monkeypatch, run_here, arguments, reason):
    where = ["--state", "state"] if arguments[0] in {"model", "state", "status", "start"} else []
    monkeypatch.chdir(odd_files)
    code, told = run_here(main, *arguments, *where)
    [refused] = told.err.splitlines()
    assert code == 1
    assert refused.startswith("error: ")
    assert reason in refused
    assert refused.isprintable()


@dataclass(frozen=True)
class Life:
    """A node that played three rounds, and stopped."""

    folder: Path
    swarm: Path
    events: list
    code: int

    @property
    def where(self):
        return ("--swarm", self.swarm, "--key", self.folder / "node.key", "--state", self.folder / "state")


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """It ran under a umask that keeps nothing from anybody."""
    folder = tmp_path_factory.mktemp("played")
    swarm = write_swarm(folder / "here.toml")
    with RunningProcess(folder / "a", "--swarm", swarm, "--rounds", 3, "--log-to", "jsonl", umask=0) as node:
        node.until_event("stopped")
        return Life(folder / "a", swarm, node.events, node.process.wait(PATIENCE))


def test_everything_that_a_node_keeps_is_for_its_owner_alone(played, tmp_path, ran):
    state, where = played.folder / "state", played.where
    assert sapo_node("state", "backup", tmp_path / "state.tar", *where, umask=0).returncode == 0
    kept = [played.folder / "node.key", tmp_path / "state.tar", state, *state.rglob("*")]
    assert {"node.sqlite", "lock", "latest", "weights.safetensors", "meta.json"} <= {each.name for each in kept}
    assert [each for each in kept if stat.S_IMODE(each.stat().st_mode) & 0o077] == []
    restored = sapo_node("state", "restore", tmp_path / "state.tar", *where[:4], "--state", tmp_path / "moved", umask=0)
    moved = [tmp_path / "moved", *(tmp_path / "moved").rglob("*")]
    assert [each for each in moved if stat.S_IMODE(each.stat().st_mode) & 0o077] == []
    assert "listens for two epochs (20 min) before it publishes" in restored.stdout
    other = ("--swarm", "starter", *where[2:4], "--state", tmp_path / "other")
    assert "--key and --swarm" in one_line_error(*ran("state", "restore", tmp_path / "state.tar", *other))


def test_others_can_write_nothing_that_a_command_makes_whatever_the_umask(tmp_path):
    """Whoever can write a manifest can lead its nodes into another swarm."""
    file = tmp_path / "manifest"
    assert sapo_node("manifest", "starter", "--encoded", file, umask=0).returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) & 0o022 == 0


@pytest.mark.slow
def test_a_key_made_by_a_start_that_failed_shares_with_the_next(tmp_path, ran):
    swarm, folder = write_swarm(tmp_path / "here.toml"), tmp_path / "a"
    (tmp_path / "model").mkdir()
    folder.mkdir()
    places = ("--key", folder / "node.key", "--state", folder / "state", "--listen", "/ip4/127.0.0.1/tcp/0")
    started = ran("start", "--network", "manual", "--swarm", swarm, "--model", tmp_path / "model", *places)
    assert "model" in one_line_error(*started)
    assert (folder / "node.key").exists()
    with RunningProcess(folder, "--swarm", swarm, "--rounds", 1) as node:
        assert node.until_event("round")["published"] is True


@pytest.mark.slow
def test_eval_of_the_base_needs_no_node_and_measures_the_policy_in_the_package():
    done = sapo_node("model", "eval", "--base", "--prompts", 4, "--json")
    result = json.loads(done.stdout)
    assert result["step"] == 0
    assert len(result["per_task"]) == 6
    for measured in (result, *result["per_task"].values()):
        assert 0 <= measured["low"] <= measured["pass_at_1"] <= measured["high"] <= 1
    assert result["high"] - result["low"] < min(each["high"] - each["low"] for each in result["per_task"].values())


def test_metrics_names_every_figure_in_its_help(run_here):
    _, told = run_here(main, "status", "--help")
    assert all(f"  {name}" in told.out for name in METRICS)


def test_start_plays_the_rounds_asked_for_and_tells_of_them(played, told):
    assert played.code == 0
    [started] = [event for event in played.events if event["event"] == "started"]
    rounds = [event for event in played.events if event["event"] == "round"]
    assert [each["step"] for each in rounds] == [1, 2, 3]
    where = played.where
    status = json.loads(told("status", *where, "--json"))
    assert status["session"]["peer_id"] == started["peer_id"]
    assert [each["step"] for each in status["rounds"]] == [1, 2, 3]
    assert status["running"] is False
    assert status["session"]["stopped"] >= status["session"]["started"]
    shown = told("status", *where)
    assert "reward" in shown
    assert "stopped " in shown
    assert started["addresses"][0] not in shown
    assert json.loads(told("peers", *where, "--json")) == []
    lines = [json.loads(line) for line in told("status", *where, "--rounds").splitlines()]
    assert lines == [{name: each[name] for name in METRICS} for each in rounds]
    assert all(line["learning_rate"] > 0 for line in lines)
    trained = json.loads(told("model", "eval", *where, "--prompts", 2, "--samples", 3, "--json"))
    assert (trained["step"], trained["samples"]) == (3, 3)


def test_chat_answers_each_line_and_says_whom_it_asks(played):
    done = sapo_node("model", "chat", *played.where, input="What is 2 + 2?\n\nWhat is 3 + 3?\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "seed after 3 rounds; Ctrl-D ends\n"
    assert len(done.stdout.splitlines()) == 2
    assert done.stdout.count("<answer>") > 0


@pytest.mark.slow
def test_chat_answers_a_line_that_is_not_utf_8(played):
    line = "What is \udcff 2 + 2?\n"
    done = sapo_node("model", "chat", *played.where, input=line, encoding="utf-8", errors="surrogateescape")
    assert (done.returncode, done.stderr) == (0, "seed after 3 rounds; Ctrl-D ends\n")
    assert done.stdout.strip()


def test_ctrl_c_ends_a_command_that_asks_for_a_passphrase_with_130(tmp_path):
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "sapo_node", "keygen", "--passphrase", "--key", str(tmp_path / "node.key")]
    with subprocess.Popen(command, stdin=theirs, stderr=theirs, env=ENVIRONMENT, start_new_session=True) as process:
        shown = b""
        while not shown.endswith(b"passphrase: "):
            shown += os.read(terminal, 1024)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    os.close(terminal)
    os.close(theirs)


def test_keygen_asks_for_no_passphrase_of_a_key_that_exists(tmp_path):
    key = tmp_path / "node.key"
    key.write_text("somebody's")
    terminal, theirs = pty.openpty()
    done = sapo_node("keygen", "--passphrase", "--key", key, stdin=theirs)
    os.close(terminal)
    os.close(theirs)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {key} exists")
    assert key.read_text() == "somebody's"


@pytest.mark.slow
def test_ctrl_c_ends_a_chat_at_its_prompt(played):
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "sapo_node", "model", "chat", "--base", *map(str, played.where)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT, start_new_session=True
    ) as process:
        shown = b""
        while not shown.endswith(b"> "):
            shown += os.read(terminal, 1024)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert b"seed before any training" in shown
    os.close(terminal)
    os.close(theirs)


def test_the_curves_hold_every_round_also_the_last(played):
    [file] = (played.folder / "state").rglob("curves.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["step"], "eval_reward" in each) for each in lines] == [(0, True), (1, False), (2, False), (3, False)]
    rounds = [event for event in played.events if event["event"] == "round"]
    assert [each["reward"] for each in lines[1:]] == [each["reward"] for each in rounds]


def test_export_and_eval_need_no_option_for_the_model_and_the_card_names_swarm_and_rounds(played, tmp_path, told):
    done = told("model", "export", tmp_path / "out", *played.where, "--json")
    assert json.loads(done) == {"step": 3, "note": None, "output": str(tmp_path / "out"), "pushed": None}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "# seed, trained in the swarm here" in card
    assert "| rounds | 3 |" in card
    assert "| **mean of tasks** | 0." in card


@pytest.mark.slow
def test_eval_with_the_configuration_of_a_node_measures_what_the_node_has_learnt(played, tmp_path, told):
    """As `chat` and `export` do with the same file: the weights before any training say nothing of what it learnt."""
    named = zip(("swarm", "key", "state"), played.where[1::2], strict=True)
    config = tmp_path / "node.toml"
    config.write_text("".join(f"{name} = {json.dumps(str(value))}\n" for name, value in named))
    asked = ("model", "eval", "--config", config, "--prompts", 1, "--json")
    assert json.loads(told(*asked))["step"] == 3
    assert json.loads(told(*asked, "--base"))["step"] == 0


@pytest.mark.slow
def test_the_best_weights_of_a_node_that_was_never_better_are_said_to_be_those_before_training(played, tmp_path):
    done = sapo_node("model", "export", tmp_path / "out", *played.where, "--best")
    assert done.returncode == 0, done.stderr
    assert "best weights, step 0 written" in done.stdout
    assert "the weights before any training" in done.stderr


def test_a_relay_names_the_settings_that_have_no_effect_on_it(tmp_path):
    swarm = write_swarm(tmp_path / "relays.toml")
    options = ("--no-train", "--generate", "http://127.0.0.1:1", "--lora", "8")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, *options) as node:
        notice = node.until(lambda event: "no effect" in event.get("text", ""))
        assert notice["text"].endswith("these settings have no effect: generate, lora")


@pytest.mark.slow
def test_a_node_whose_completions_hardly_fit_into_the_swarms_bytes_says_so(tmp_path):
    swarm = write_swarm(tmp_path / "short.toml")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--max-tokens", "342") as node:
        notice = node.until(lambda event: "the swarm keeps 1,024 bytes" in event.get("text", ""))
        assert notice["text"].endswith("Give at most --max-tokens 341, or a swarm that keeps more")


def test_a_node_in_a_swarm_that_begins_later_says_when(tmp_path, told):
    swarm = write_swarm(tmp_path / "later.toml", genesis=1_900_000_000)
    where = ("--swarm", swarm, "--key", tmp_path / "a" / "node.key", "--state", tmp_path / "a" / "state")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--no-train") as node:
        node.until(lambda event: re.search(r"the swarm begins 1\d Mar 2030 \d\d:\d\d", event.get("text", "")))
        node.until_event("started")
        assert "for the beginning of the swarm" in told("status", *where)


def test_status_and_doctor_ask_a_node_that_runs(tmp_path, told, monkeypatch):
    swarm = write_swarm(tmp_path / "here.toml")
    where = ("--swarm", swarm, "--key", tmp_path / "a" / "node.key", "--state", tmp_path / "a" / "state")
    relay = tmp_path / "relay.toml"
    relay.write_text("train = false")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--no-train") as node:
        address = node.until_event("started")["addresses"][0]
        checked = told("doctor", *where, "--config", relay)
        monkeypatch.setenv("COLUMNS", "80")
        running = told("status", *where)
        monkeypatch.setenv("COLUMNS", "120")
        node.process.kill()
        node.process.wait()
        killed = told("status", *where)
    assert "running since " in running
    assert address in running.splitlines(), "on a line of its own, in no box, however narrow the terminal is"
    assert "✓ listen    the running node listens" in checked
    assert f"announces {address}" in checked
    assert running.startswith("verifying and relaying: no peer connected for ")
    assert killed.startswith("attention: not running: it was killed, its machine stopped, or its state comes from a ")
    assert address not in killed


@pytest.fixture(scope="module")
def message(played, tmp_path_factory):
    """A message that a real node signed, and its swarm."""
    (database,) = (played.folder / "state").rglob("node.sqlite")
    with sqlite3.connect(database) as connection:
        (data,) = connection.execute("SELECT message FROM published").fetchone()
    file = tmp_path_factory.mktemp("message") / "message.cbor"
    file.write_bytes(data)
    return file, played.swarm


def test_verify_confirms_what_a_node_published_and_refuses_it_once_changed(message, ran, told):
    file, swarm = message
    finding = json.loads(told("verify", file, "--swarm", swarm, "--json"))
    assert [group["verdict"] for group in finding["groups"]] == ["holds"] * 4
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    changed = file.with_name("changed.cbor")
    changed.write_bytes(data)
    code, refused = ran("verify", changed, "--swarm", swarm, "--json")
    assert code == 1
    assert json.loads(refused.out)["refused_by"] == "signature"


def test_verify_under_another_swarm_is_a_bad_signature(message, ran):
    file, _ = message
    assert json.loads(ran("verify", file, "--json")[1].out)["refused_by"] == "signature"
