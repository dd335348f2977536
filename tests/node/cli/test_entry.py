"""The entry points say which part of the package is missing, whenever they notice it."""

from functools import partial

import pytest

from sapo_node.cli.commands.group import CommandGroup
from sapo_node.cli.commands.options import run_command_line
from sapo_node.cli.entry import run


@pytest.mark.parametrize(
    "source", ["import no_such_module\ndef main(): ...", "def main():\n    import no_such_module"], ids=["load", "run"]
)
def test_a_missing_module_is_one_line_that_says_what_to_install(source, tmp_path, monkeypatch, request):
    name = f"commands_{request.node.callspec.id}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match=r"needs no_such_module.*pip install .*\[adversary\]'"):
        run(name, needs="adversary")


def test_a_missing_module_of_our_own_is_a_fault_and_not_an_installation(tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text("def main():\n    import sapo_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError):
        run("faulty", needs="train")


INTERRUPTED = {
    "in a command": "signal.raise_signal(signal.SIGINT)",
    "in a loop of events": "trio.run(trio.to_thread.run_sync, signal.raise_signal, signal.SIGINT)",
}


@pytest.mark.parametrize("moment", INTERRUPTED)
def test_ctrl_c_ends_a_command_with_130_whenever_it_comes(moment, tmp_path, monkeypatch, run_here):
    package = f"interrupted_{moment.replace(' ', '_')}"
    (tmp_path / package).mkdir()
    code = f"import signal, click, trio\n@click.command()\ndef stop():\n    {INTERRUPTED[moment]}\n"
    (tmp_path / package / "stopping.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    commands = CommandGroup(package=package, sections={"Commands": {"stop": "stopping"}})
    code, said = run_here(partial(run_command_line, commands), "stop")
    assert (code, said.err) == (130, "")


def test_ctrl_c_ends_a_command_that_is_still_loading_with_130(tmp_path, monkeypatch):
    (tmp_path / "slow_to_load.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match="130"):
        run("slow_to_load", needs="train")
