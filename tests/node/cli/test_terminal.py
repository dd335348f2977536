"""What peers, manifests and plug-ins wrote cannot steer the terminal of whoever reads about it."""

import io
import logging
from dataclasses import replace

import pytest
from rich.style import Style
from rich.table import Table
from rich.text import Text

from sapo_node.app.config import Config, load_config
from sapo_node.app.state import StateFolder
from sapo_node.cli.backup import restore_backup
from sapo_node.cli.terminal import PrintableFormatter, Terminal
from sapo_node.net.addresses import parse_announce, parse_dial, parse_listen
from sapo_node.storage.database import Database
from sapo_node.storage.keys import load_key
from sapo_node.verification.catalogue import require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import LocalError, load_manifest, parse_manifest, public_key_of, render_manifest
from sapo_protocol.printable import excerpt

EVIL = "evil\x1b]0;x\x07\x9b31m\u202e\u2066\u2028"
STARTER = render_manifest(load_manifest("starter"))


def manifest_of(tmp_path):
    load_manifest(EVIL)


def key_of_a_manifest(tmp_path):
    parse_manifest(r'"evil\u001b\u202e" = 1', EVIL)


def name_in_a_manifest(tmp_path):
    parse_manifest(STARTER.replace('"starter"', r'"evil\u001b\u202e"', 1), "mine.toml")


def dataset_in_a_manifest(tmp_path):
    parse_manifest(STARTER.replace('"products"', r'"evil\u001b\u202e"', 1).replace("weight = 1", "weight = 0", 1), "it")


def configuration(tmp_path):
    load_config(tmp_path / EVIL)


def key_of_a_configuration(tmp_path):
    (tmp_path / "node.toml").write_text(r'"evil\u001b\u202e" = 1')
    load_config(tmp_path / "node.toml")


def setting(tmp_path):
    Config(device=EVIL)


def key_file(tmp_path):
    load_key(tmp_path / EVIL)


def state(tmp_path):
    Database(tmp_path / EVIL, (), read_only=True)


def backup(tmp_path):
    (tmp_path / EVIL).write_bytes(b"")
    restore_backup(tmp_path / EVIL, StateFolder(tmp_path / "state"), tmp_path / "files", peer_id="", network_id="")


def bootstrap(tmp_path):
    parse_dial(EVIL)


def listening(tmp_path):
    parse_listen(EVIL)


def announced(tmp_path):
    parse_announce(EVIL)


def peer(tmp_path):
    public_key_of(EVIL)


PLACES = [
    *(manifest_of, key_of_a_manifest, name_in_a_manifest, dataset_in_a_manifest),
    *(configuration, key_of_a_configuration, setting, key_file, state, backup, bootstrap, listening, announced, peer),
]


@pytest.mark.parametrize("place", PLACES)
def test_an_error_that_quotes_foreign_text_is_printable(tmp_path, place):
    with pytest.raises(LocalError) as refused:
        place(tmp_path)
    assert "evil" in str(refused.value)
    assert str(refused.value).isprintable()


async def test_an_error_about_a_task_that_nobody_has_is_printable(nursery):
    sandbox = Sandbox()
    await nursery.start(sandbox.run)
    swarm = load_manifest("starter")
    for name in ("evil.\x1b\u202e", "evil\x1b\u202e"):
        evil = replace(swarm, tasks=(replace(swarm.tasks[0], dataset=name),))
        with pytest.raises(LocalError, match="evil") as refused:
            await require_catalogue(evil, sandbox)
        assert str(refused.value).isprintable()


def printed(renderable):
    out = io.StringIO()
    Terminal(file=out, force_terminal=False, width=200).print(renderable)
    return out.getvalue()


def in_a_table(text):
    table = Table(text, title=text)
    table.add_row(text)
    return table


@pytest.mark.parametrize("kind", [str, Text, in_a_table], ids=["text", "styled", "a table"])
def test_what_the_terminal_shows_is_printable_but_for_its_own_line_breaks(kind):
    shown = printed(kind(EVIL))
    assert "evil" in shown
    assert shown.replace("\n", "").isprintable()


MARKUP = "[link=https://evil.example]a[/link] [/nothing] :warning:"


@pytest.mark.parametrize("kind", [str, in_a_table], ids=["text", "a table"])
def test_text_has_no_markup(kind):
    assert MARKUP in printed(kind(MARKUP))


def test_the_terminal_keeps_its_own_colours_and_lines():
    out = io.StringIO()
    Terminal(file=out, force_terminal=True, color_system="standard").print(Text.assemble(("a", "red"), "\nb"))
    assert out.getvalue() == "\x1b[31ma\x1b[0m\nb\n"


def test_a_link_cannot_end_its_own_escape_sequence():
    out = io.StringIO()
    evil = Text("page", Style(link="http://a/\x1b\\\x1b[2J\x07"))
    Terminal(file=out, force_terminal=True, color_system="standard").print(evil)
    assert "\x1b[2J" not in out.getvalue()
    assert "\x07" not in out.getvalue()


def test_a_log_line_is_printable_and_a_traceback_keeps_its_lines():
    error = ValueError("why\x1b")
    record = logging.LogRecord("x", logging.INFO, "", 0, "peer says %s\n", (EVIL,), (ValueError, error, None))
    line, *traceback = PrintableFormatter("%(message)s").format(record).split("\n")
    assert line.isprintable()
    assert traceback == [r"ValueError: why\x1b"]


def test_words_of_a_program_or_a_server_are_one_short_printable_line():
    shown = excerpt(f"{EVIL}\n" + "x" * 300, 100)
    assert shown.isprintable()
    assert shown.count("x") < 100
