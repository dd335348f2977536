"""Complete commands and options in a shell: `completion`."""

import os
import shlex
from pathlib import Path

import click
import platformdirs
from click.shell_completion import get_completion_class

from sapo_node.cli.commands.options import write_file
from sapo_node.cli.terminal import say
from sapo_protocol import LocalError

PROGRAM = "sapo-node"
SHELLS = ("bash", "zsh", "fish")
_STARTUP = {"bash": ".bashrc", "zsh": ".zshrc"}
"""The file that a shell reads when it starts, in the home folder. fish has a folder for completions instead."""
_BEFORE = {"bash": "", "zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }; "}
"""What a shell needs before it reads the script."""


@click.command()
@click.argument("shell", required=False, type=click.Choice(SHELLS))
@click.option("--install", is_flag=True, help="Write the script to its place, and let SHELL read it when it starts.")
def completion(shell: str | None, *, install: bool) -> None:
    """Print the script by which SHELL completes commands.

    SHELL is bash, zsh or fish. Without it, `completion` takes the shell of the variable SHELL. With --install, bash and
    zsh get one line in ~/.bashrc or ~/.zshrc, and fish gets a file. A second --install changes nothing.

    \b
    sapo-node completion --install
    """  # noqa: D301 - click reads the backspace
    shell = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None:
        raise click.UsageError(f"name a shell: {', '.join(SHELLS)}")
    root = click.get_current_context().find_root().command
    script = kind(root, {}, PROGRAM, "_SAPO_NODE_COMPLETE").source()
    if install:
        say(f"installed in {_install(shell, script)}; a new {shell} completes with Tab")
    else:
        say(script)


def _install(shell: str, script: str) -> Path:
    """Write the script, and a line that reads it. Return the file that the shell reads when it starts."""
    if shell == "fish":
        file = platformdirs.user_config_path("fish") / "completions" / f"{PROGRAM}.fish"
        _write(file, script)
        return file
    file = platformdirs.user_data_path(PROGRAM) / f"completion.{shell}"
    _write(file, script)
    startup = Path.home() / _STARTUP[shell]
    line = f"{_BEFORE[shell]}. {shlex.quote(str(file))}  # {PROGRAM} completion\n"
    try:
        before = startup.read_text(encoding="utf-8") if startup.exists() else ""
        if line not in before:
            with startup.open("a", encoding="utf-8") as opened:
                opened.write(f"{'' if before.endswith(chr(10)) or not before else chr(10)}{line}")
    except (OSError, UnicodeDecodeError) as error:
        raise LocalError(f"cannot change {startup} ({error}); add this line to it: {line.strip()}") from error
    return startup


def _write(file: Path, script: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(f"cannot make {file.parent}: {error.strerror}") from error
    write_file(file, script.encode())
