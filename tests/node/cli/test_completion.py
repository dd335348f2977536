"""Tab completes commands and options: what `sapo-node completion` prints and installs, in a real shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from processes import ENVIRONMENT
from sapo_node.cli.main import main

ASK = """
. {script}
COMP_WORDS=(sapo-node {words}) COMP_CWORD={place}
_sapo_node_completion sapo-node
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder of a user of bash."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    return tmp_path


@pytest.fixture
def program(tmp_path):
    """An environment in which `sapo-node` is this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / "sapo-node"
    file.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'sapo-node'\nfrom sapo_node.cli.entry import main\nmain()\n"
    )
    file.chmod(0o700)
    return ENVIRONMENT | {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(tmp_path)}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_and_options_after_the_installation(home, program, run_here):
    code, told = run_here(main, "completion", "--install")
    assert code == 0, told.err
    assert told.out == f"installed in {home / '.bashrc'}; a new bash completes with Tab\n"
    for words, place, expected in (("expo", 1, "export"), ("export --adap", 2, "--adapter-only")):
        script = ASK.format(script=home / ".bashrc", words=words, place=place)
        done = subprocess.run(["bash", "-c", script], env=program, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [expected]


def test_a_second_installation_changes_nothing_and_what_was_there_stays(home, run_here):
    (home / ".bashrc").write_text("alias l=ls")
    run_here(main, "completion", "bash", "--install")
    first = (home / ".bashrc").read_text()
    run_here(main, "completion", "bash", "--install")
    assert (home / ".bashrc").read_text() == first
    assert first.startswith("alias l=ls\n. ")
    assert len(first.splitlines()) == 2


def test_fish_gets_a_file_and_zsh_a_line(home, run_here):
    for shell, file in (("fish", ".config/fish/completions/sapo-node.fish"), ("zsh", ".zshrc")):
        code, told = run_here(main, "completion", shell, "--install")
        assert (code, told.out.split()[2]) == (0, f"{home / file};")
        assert "sapo-node" in (home / file).read_text()


def test_a_shell_that_is_not_known_is_one_clear_line(home, monkeypatch, run_here):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    code, told = run_here(main, "completion")
    assert code == 2
    assert "name a shell: bash, zsh, fish" in told.err


def test_a_startup_file_that_cannot_be_changed_is_one_line_with_what_to_add(home, run_here):
    (home / ".bashrc").mkdir()
    code, told = run_here(main, "completion", "--install")
    assert code == 1
    assert "add this line to it: . " in told.err


def test_the_script_is_printed_without_an_installation(home, run_here):
    code, told = run_here(main, "completion", "zsh")
    assert (code, told.out.splitlines()[0]) == (0, "#compdef sapo-node")
    assert list(Path(home).iterdir()) == []
