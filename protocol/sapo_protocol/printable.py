"""Makes text from outside safe to print: it cannot move the cursor, set colours, change the direction of a line, or
hide in it.
"""

import re

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Python calls printable and that show nothing: fillers and variation selectors."""


def is_printable(text: str) -> bool:
    """Return whether `printable` would leave the text as it is."""
    return text.isprintable() and not _INVISIBLE.search(text)


def printable(text: str) -> str:
    r"""Return `text` on one line. Line breaks, tabs and unusual spaces become " ". Every other character that is not
    printable becomes its escape, such as `\x1b` or `\u202e`.

    Python calls these characters not printable: C0 and C1 controls, DEL, bidirectional controls, joiners, tags, line
    and paragraph separators, lone surrogates, and unassigned code points. `_INVISIBLE` has the others that show
    nothing.
    """
    return text if is_printable(text) else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """Return `text` with its line breaks. Every line is printable."""
    return "\n".join(map(printable, text.split("\n")))


def excerpt(text: str, most: int = 200) -> str:
    """Return the first `most` characters of a text, on one printable line."""
    return printable(text[:most].strip())


def line_of(error: BaseException) -> str:
    """Return the first line of an error of a library, as `excerpt` does; the name of its class if it has no text."""
    return excerpt(str(error).strip().partition("\n")[0]) or type(error).__name__


def _shown(character: str) -> str:
    if is_printable(character):
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")
