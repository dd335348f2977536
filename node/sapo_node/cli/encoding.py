"""Lets standard output and standard error take any text, whatever their encoding.

A terminal may be set to ASCII or Latin-1. There a box, a mark or a column of a chart becomes an ASCII character of the
same width, and any other character its escape. rich draws its own boxes in ASCII there.
"""

import codecs
import sys
from io import TextIOWrapper

_HANDLER = "sapo-node"
_ASCII = str.maketrans("✓✗●·…×−─━│┤╭╮╰╯▁▂▃▄▅▆▇█", "+x*..x---||++++.,:-=+*#")


def accept_all_text() -> None:
    """Change how the standard streams handle what their encoding cannot express. Call this once, at the start."""
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
