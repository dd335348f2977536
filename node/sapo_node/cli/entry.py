"""Entry points of the commands. If an optional dependency is missing, they print how to install it.

Standard output and standard error take any text, whatever their encoding. If a terminal is set to ASCII or Latin-1, a
box, a mark or a column of a chart becomes an ASCII character of the same width, and any other character its escape.
rich draws its own boxes in ASCII there.
"""

import codecs
import sys
from importlib import import_module
from io import TextIOWrapper

from sapo_node.processes.extras import command_for
from sapo_node.storage.files import deny_writing

_HANDLER = "sapo-node"
_ASCII = str.maketrans("✓✗●·…×−─━│┤╭╮╰╯▁▂▃▄▅▆▇█", "+x*..x---||++++.,:-=+*#")
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""


def main() -> None:
    """Entry point of `sapo-node`."""
    run("sapo_node.cli.main", needs="train")


def run(commands: str, *, needs: str) -> None:
    """Run the commands of the module `commands`. `needs` is the extra of this package that the module imports."""
    deny_writing()
    accept_all_text()
    try:
        import_module(commands).main()  # a command imports its own modules when it runs
    except KeyboardInterrupt:  # while modules are imported
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("sapo_"):
            raise
        sys.exit(f"this command needs {missing.name}, which is not installed: {command_for(needs)}")


def accept_all_text() -> None:
    """Let the standard streams replace characters that their encoding lacks. Call this once, at the start."""
    codecs.register_error(_HANDLER, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # what is typed may be a path, whose bytes need no encoding


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = "".join(map(_in_ascii, error.object[error.start : error.end]))
    return text, error.end


def _in_ascii(character: str) -> str:
    if "\u2800" <= character <= "\u28ff":  # rich draws its spinner in Braille
        return "*"
    shown = character.translate(_ASCII)
    return shown if shown.isascii() else shown.encode("ascii", "backslashreplace").decode("ascii")
