"""A terminal whose encoding is not UTF-8 shows what the commands print."""

import io
import re
import sys
from pathlib import Path

import pytest
from rich.table import Table

import sapo_node.cli
from sapo_node.cli.entry import accept_all_text
from sapo_node.cli.terminal import Terminal, say

SHOWN = sorted(
    set(re.findall(r"[^\x00-\x7f]", "".join(p.read_text() for p in Path(sapo_node.cli.__file__).parent.rglob("*.py"))))
)
"""Every character beyond ASCII that stands in the code of the commands."""


def printed(encoding, monkeypatch, show):
    """What reaches a terminal of this encoding."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    accept_all_text()
    show()
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


def test_each_character_of_ours_is_one_ascii_character(monkeypatch):
    shown = printed("ascii", monkeypatch, lambda: say("".join(SHOWN)))
    assert re.fullmatch(rf"[ -~]{{{len(SHOWN)}}}\n", shown)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_table_and_a_foreign_character_are_readable_in_any_encoding(encoding, monkeypatch):
    table = Table("mark", "word")
    table.add_row("●", "語")
    shown = printed(encoding, monkeypatch, lambda: Terminal(width=40).print(table))
    assert "| *    | \\u8a9e" in shown
    assert "+-" in shown


def test_utf_8_stays_as_it_is(monkeypatch):
    assert printed("utf-8", monkeypatch, lambda: say("".join(SHOWN))) == "".join(SHOWN) + "\n"
