"""What comes from outside is made printable, and files are kept from other users, by one module each."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "protocol/sapo_protocol", ROOT / "node/sapo_node", ROOT / "adversary/sapo_adversary/files.py"]


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
