"""What a user hands to `sapo-adversary`: whatever is wrong with it, one line says so, and there is no traceback."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from sapo_adversary.cli.load import MOST_USERS
from sapo_adversary.cli.main import cli
from sapo_adversary.experiments.experiment import load_experiment
from sapo_adversary.load.keys import identity_of
from sapo_adversary.scenarios.scenario import load_scenario
from sapo_node.app.config import load_config, render_config
from sapo_protocol import LocalError, SapoError

SCENARIO = 'title = "t"\nattack = "false-claim"\nundefended = ["re-verification"]\n'
EXPERIMENT = (
    'title = "t"\nquestion = "q"\nseeds = [1]\nreference = "a"\nceiling = 0.9\n'
    "[simulation]\nseconds = 10\n[[simulation.nodes]]\ncount = 2\n[arms.a]\nlocal = 4\n"
)
PEER = identity_of("somebody", 1).peer_id


def outcome(*arguments):
    """The exit code, as the entry point makes it, and the line of the error."""
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    if isinstance(done.exception, SapoError):
        return 1, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output.strip().splitlines()[-1] if done.output.strip() else ""


def refused(*arguments, code=1):
    found, line = outcome(*arguments)
    assert found == code, line
    assert line.isprintable()
    return line


def folder_commands(target):
    return [
        ("run", "false-claim", "--output", target),
        ("run", "false-claim", "--records", target),
        ("matrix", "quick", "--output", target),
        ("experiment", "external-objectives", "--output", target),
        ("experiment", "external-objectives", "--records", target),
    ]


def test_report_after_a_run_names_the_results_of_that_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for name in ("false-claim.json", "false-claim.html", "sapo_table.json"):
        (tmp_path / "results" / name).write_text("{}")
    assert "sapo-adversary report results/false-claim.json" in refused("report")


@pytest.mark.parametrize(
    ("number", "what"),
    [*((number, "a file") for number in range(5)), (0, "below a file"), (0, "of the kernel"), (0, "a pipe")],
)
def test_a_folder_that_nobody_can_write_into_is_refused_before_anything_is_played(number, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("afile").write_text("")
    os.mkfifo("pipe")
    target = {"a file": "afile", "below a file": "afile/x", "of the kernel": "/proc/x", "a pipe": "pipe"}[what]
    line = refused(*folder_commands(target)[number])
    assert line.startswith(f"cannot write into the folder {target}")


def wrong_files(folder):
    """Files of which no command can make anything, by what is wrong with them."""
    os.mkfifo(folder / "pipe.toml")
    (folder / "folder.toml").mkdir()
    contents = {
        "empty": b"",
        "no-text": b"\xff\xfe\x00",
        "deep": b"a = " + b"[" * 3_000,
        "deep-keys": b"[options]\n" + b".".join([b"a"] * 3_000) + b" = 1",
        "digits": b"a = " + b"1" * 5_000,
        "no-toml": b"{",
        "list": b"[[title]]",
    }
    for name, data in contents.items():
        (folder / f"{name}.toml").write_bytes(data)
    return [*contents, "pipe", "folder", "missing"]


@pytest.mark.parametrize("load", [load_scenario, load_experiment])
def test_a_file_of_which_nothing_can_be_made_is_refused_in_one_line(load, tmp_path):
    for name in wrong_files(tmp_path):
        with pytest.raises(LocalError) as refusal:
            load(str(tmp_path / f"{name}.toml"))
        assert str(refusal.value).isprintable(), name


@pytest.mark.parametrize(
    "line",
    [
        "title = 5",
        'undefended = "re-verification"',
        "undefended = [1]",
        'simulation = "x"',
        "simulation = { seconds = -1 }",
        "simulation = { seconds = nan }",
        "simulation = { seconds = inf }",
        "simulation = { learner = 'x' }",
        "simulation = { trusted = 1 }",
        "simulation = { crowd = 1000000000, audited = true }",
        "node = { count = 'x' }",
        "node = { count = 1000000000 }",
        "node = { round_seconds = 0 }",
        "node = { filters = ['x'] }",
        "node = []",
        "kinds = 1",
        "kinds = [1]",
        "attackers = { count = -1 }",
        "attackers = { acts_every = 0 }",
        "simulation = { crowd = 'x' }",
        "options = { where = [] }",
        "harm = { external = 1 }",
        "harm = { external = { at_most = 'x' } }",
        "harm = { external = {} }",
        "harm = { reward_list = { at_most = 1 } }",
        "beside = 1",
    ],
)
def test_a_value_of_a_scenario_that_cannot_be_is_refused(line, tmp_path):
    kept = "".join(each for each in SCENARIO.splitlines(keepends=True) if each.split()[0] != line.split()[0])
    (tmp_path / "mine.toml").write_text(kept + line)
    with pytest.raises(LocalError) as refusal:
        load_scenario(str(tmp_path / "mine.toml"))
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seeds = [1]", "seeds = []"),
        ("seeds = [1]", "seeds = 1"),
        ("seeds = [1]", "seeds = ['x']"),
        ('reference = "a"', 'reference = "b"'),
        ("ceiling = 0.9", "ceiling = 'x'"),
        ("ceiling = 0.9", "ceiling = 0.9\nspeed = 1"),
        ("ceiling = 0.9", "ceiling = 0.9\ngrid = 1"),
        ("ceiling = 0.9", "ceiling = 0.9\ngrid = { local = 1 }"),
        ("count = 2", "count = 2.5"),
        ("count = 2", "role = []"),
        ("[[simulation.nodes]]", "[simulation.nodes]"),
        ("seconds = 10", "seconds = 0"),
        ("seconds = 10", "groups = 0"),
        ("local = 4", "local = 'x'"),
        ("local = 4", "speed = 4"),
        ('title = "t"\n', ""),
    ],
)
def test_a_value_of_an_experiment_that_cannot_be_is_refused(old, new, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(EXPERIMENT)
    load_experiment(str(path))
    path.write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(LocalError) as refusal:
        load_experiment(str(path))
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    ("arguments", "close"),
    [(("run", "fals-claim"), "false-claim"), (("experiment", "external-objektive"), "external-objectives")],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(arguments, close):
    assert f"did you mean {close}?" in refused(*arguments)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"outcomes": 1}', '{"outcomes": [{}]}', "[" * 3_000, "1" * 5_000]
)
def test_results_that_are_none_are_refused_by_what_reads_them(text, tmp_path):
    file = tmp_path / "external_objectives.json"
    file.write_text(text)
    (tmp_path / "matrix.json").write_text(text)
    for arguments in (
        ("report", file),
        ("report", file, "--markdown"),
        ("report", file, "--pictures", tmp_path),
        ("experiment", "external-objectives", "plot", "--output", tmp_path),
        ("matrix", "models", "--output", tmp_path),
    ):
        assert "external_objectives.json" in (line := refused(*arguments)) or "matrix.json" in line


def test_a_run_names_the_program_that_builds_its_missing_policy(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    line = refused("run", "poison-text", "--output", tmp_path / "results")
    assert "python -m research.policies talkative" in line


def test_results_in_a_pipe_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is damaged or holds no results" in refused("report", tmp_path / "pipe")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "false-claim", "--share", "nan"),
        ("run", "false-claim", "--share", "-1"),
        ("run", "false-claim", "--seeds", "0"),
        ("run", "false-claim", "--seeds", "1000000000"),
        ("run", "false-claim", "--jobs", "1000000000"),
        ("matrix", "--seeds", "1000000000"),
        ("load-keys", "--users", "0"),
        ("load-keys", "--users", "-1"),
        ("load-keys", "--users", "100000000"),
    ],
)
def test_a_number_out_of_bounds_is_refused_at_once(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(*arguments, code=2)


def test_too_many_users_of_a_load_test_are_refused_with_the_reason():
    assert "a node holds 64 connections" in refused("load-keys", "--users", MOST_USERS + 1, code=2)


def test_the_configuration_of_a_load_test_is_made_from_a_generated_one_as_the_help_says(tmp_path):
    config = load_config(None).overridden({"local": 7, "trusted": (PEER,)})
    (tmp_path / "node.toml").write_text(render_config(config))
    for arguments, kept in (((), ()), (("--config", tmp_path / "node.toml"), (PEER,))):
        printed = CliRunner().invoke(cli, ["load-keys", "--users", "3", *map(str, arguments)]).stdout
        (tmp_path / "load.toml").write_text(printed)
        loaded = load_config(tmp_path / "load.toml")
        assert loaded.trusted == (*kept, *(identity_of("load", user).peer_id for user in range(3)))
        assert loaded.local == (7 if kept else 4)
    help_text = CliRunner().invoke(cli, ["load-keys", "--help"]).output
    assert "--config node.toml > load.toml" in help_text
    assert ">> " not in help_text


def test_the_table_of_foreign_results_cannot_steer_the_terminal(tmp_path):
    results = json.loads((Path(__file__).parents[3] / "docs/results/matrix.json").read_text("utf-8"))
    results["outcomes"] = [results["outcomes"][0] | {"scenario": "x\x1b]0;title\x07"}]
    (tmp_path / "matrix.json").write_text(json.dumps(results))
    status, line = outcome("report", tmp_path / "matrix.json", "--markdown")
    assert (status, "x\\x1b]0;title\\x07" in line, line.isprintable()) == (0, True, True)


@pytest.mark.parametrize("name", ["../escaped", "a/b", "", "\x1b[2J"])
def test_the_pictures_of_foreign_results_stay_in_their_folder(name, tmp_path):
    played = {"label": name, "curves": {"defended": {"reward": [0.1, 0.2], "poison": [0.0, 0.0]}}, "verdicts": []}
    (tmp_path / "matrix.json").write_text(json.dumps({"outcomes": [played]}))
    line = refused("report", tmp_path / "matrix.json", "--pictures", tmp_path / "pictures")
    assert "cannot be the name of a file" in line
    assert [path.name for path in tmp_path.rglob("*")] == ["matrix.json"]
