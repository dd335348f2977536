"""Makes text from outside safe to print: it cannot move the cursor, set colours, or change the direction of a line."""


def printable(text: str) -> str:
    r"""Return `text` on one line. Line breaks, tabs and unusual spaces become " ". Every other character that is not
    printable becomes its escape, such as `\x1b` or `\u202e`.

    Python calls these characters not printable: C0 and C1 controls, DEL, bidirectional controls, line and paragraph
    separators, lone surrogates, and unassigned code points.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")
