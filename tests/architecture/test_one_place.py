"""What comes from outside is opened, made printable and kept from other users by one module each."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "protocol/sapo_protocol", ROOT / "node/sapo_node", ROOT / "adversary/sapo_adversary/files.py"]

OPENS = {"open", "read_text", "read_bytes", "memmap", "fdopen"}
"""Functions and methods that open a file for reading."""
OPENERS = {
    "sapo_adversary/files.py": "TOML files of the package",
    "sapo_protocol/files.py": "opens every file that others may have written",
    "sapo_protocol/manifest.py": "a manifest of the package",
    "sapo_node/app/state.py": "the lock of the state folder, which it makes",
    "sapo_node/cli/backup.py": "writes a new file, whose name it has checked; an archive that files.py opened",
    "sapo_node/cli/demo.py": "the log that it writes",
    "sapo_node/cli/terminal.py": "/dev/null",
    "sapo_node/learner/device.py": "/proc and /sys",
    "sapo_node/net/in_memory.py": "asks whether a link of the simulated network is open",
    "sapo_node/observability/curves.py": "/dev/null, and the curves that it writes",
    "sapo_node/observability/dashboard/server.py": "the page of the package",
    "sapo_node/processes/extras.py": "what the installer noted of this package",
    "sapo_node/processes/limits.py": "/proc",
    "sapo_node/storage/keys.py": "a key that it creates",
    "sapo_node/storage/files.py": "files that it writes, flushes or locks",
    "sapo_node/storage/location.py": "/proc, and the file that it writes",
    "sapo_node/verification/sandbox/zygote.py": "/dev/null",
    "sapo_node/verification/tasks/library.py": "data of the installed reasoning-gym",
}
"""The modules that open files by themselves, and what these files are."""


def modules(*packages):
    """Of each module its path below the folder of packages, and its syntax."""
    for package in packages:
        for path in [package] if package.is_file() else package.rglob("*.py"):
            yield path.relative_to(ROOT).as_posix().partition("/")[2], ast.parse(path.read_text("utf-8"))


def calls(tree):
    """The name of each function or method that is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@pytest.fixture(scope="module")
def parsed():
    return list(modules(*PACKAGES))


def test_only_the_modules_with_a_reason_open_files_by_themselves(parsed):
    found = {path for path, tree in parsed if any(name in OPENS for _, name in calls(tree))}
    assert found == OPENERS.keys()


@pytest.mark.parametrize("line", ["Path(name).read_text()", "open(name)", "path.open('rb')", "os.open(name, flags)"])
def test_an_opened_file_is_seen(line):
    assert any(name in OPENS for _, name in calls(ast.parse(line)))


def test_what_is_printable_is_decided_in_one_module(parsed):
    """An HTTP header has its own grammar: it is not printed."""
    deciding = {path for path, tree in parsed if any(name == "isprintable" for _, name in calls(tree))}
    assert deciding == {"sapo_protocol/printable.py", "sapo_node/contributors/exchange.py"}


def is_json(argument):
    return isinstance(argument, ast.Call) and getattr(argument.func, "attr", "") == "dumps"


def test_commands_print_lines_through_the_terminal_and_only_those_of_the_adversary_print_json_past_it(parsed):
    """JSON is ASCII, so it cannot steer a terminal. A node must outlive whoever reads what it prints."""
    for path, tree in (*parsed, *modules(ROOT / "adversary/sapo_adversary/cli")):
        if path == "sapo_node/cli/terminal.py":
            continue
        for call, name in calls(tree):
            if name in {"echo", "secho"}:
                assert is_json(call.args[0]), f"{path}, line {call.lineno}: print text with `say`"
                assert path.startswith("sapo_adversary"), f"{path}, line {call.lineno}: print JSON with `say_json`"
            assert name != "Console", f"{path}, line {call.lineno}: use Terminal"


def test_the_umask_is_set_in_one_module(parsed):
    assert [path for path, tree in parsed if any(name == "umask" for _, name in calls(tree))] == [
        "sapo_node/storage/files.py"
    ]
