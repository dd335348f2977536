"""Files and TOML that a stranger may have written: read within limits, and never a way to steer a terminal."""

import os
import pwd
import random
import time

import pytest

from mutation import mutated
from sapo_protocol import Layer, LocalError, RemoteError, load_manifest, parse_manifest, render_manifest
from sapo_protocol.files import NoSuchFile, expanded, open_regular, read_bounded, read_json
from sapo_protocol.printable import printable
from sapo_protocol.toml import parse_toml, read_toml, toml_value

STEERING = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ud800\udfff",
]
HIDDEN = [
    *map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180E, 0x180F, 0x3164, 0xFE00, 0xFE0F, 0xFFA0)),
    *map(chr, (0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0x2064, 0xFEFF, 0xE0001, 0xE0041, 0xE007F, 0xE0100, 0xE01EF)),
]
"""Characters that show nothing: fillers, joiners, variation selectors, tags."""


def pipe(path):
    os.mkfifo(path)


def folder(path):
    path.mkdir()


def device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "", "{", '{"a": NaN}', '{"a": 1e}', '{"a": %s}' % ("9" * 5_000)])
def test_what_is_no_json_object_is_one_error(tmp_path, text):
    (tmp_path / "it").write_text(text)
    with pytest.raises(LocalError, match="give another file"):
        read_json(tmp_path / "it", 200_000, "index")


def test_a_json_object_is_read(tmp_path):
    (tmp_path / "it").write_text('{"a": [1, "é"]}')
    assert read_json(tmp_path / "it", 100, "index") == {"a": [1, "é"]}


@pytest.mark.parametrize(("path", "found"), [("~", "/h"), ("~/x", "/h/x"), ("x/~", "x/~"), ("./~", "./~")])
def test_a_tilde_at_the_start_is_the_home_folder(path, found, monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    assert expanded(path) == found


def test_a_tilde_with_a_name_is_the_home_folder_of_that_user():
    assert expanded("~root/x") == f"{pwd.getpwnam('root').pw_dir}/x"


@pytest.mark.parametrize(("path", "home"), [("~nobody-has-this-name/x", "/h"), ("~/x", "")])
def test_a_tilde_without_a_home_folder_is_refused_with_what_to_write(path, home, monkeypatch):
    monkeypatch.setenv("HOME", home)
    with pytest.raises(LocalError, match=rf"no home folder for {path.partition('/')[0]}; write the whole path"):
        expanded(path)


NO_TEXT = {
    "utf-8-sig": "the byte order mark of UTF-8",
    "utf-16": "the byte order mark of UTF-16",
    "utf-32": "the byte order mark of UTF-32",
    "utf-16-le": "a zero byte in line 1, as UTF-16 text does",
    "latin-1": "not UTF-8 text: see byte 7, in line 2",
}


@pytest.mark.parametrize("encoding", NO_TEXT)
@pytest.mark.parametrize("read", [read_toml, read_json])
def test_text_in_another_encoding_is_refused_by_the_name_of_that_encoding(tmp_path, encoding, read):
    (tmp_path / "it").write_bytes("# 1\r\n# é".encode(encoding))
    with pytest.raises(LocalError, match=NO_TEXT[encoding]):
        read(tmp_path / "it", 100, "file")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\nb = 2\na = 3", "line 3 sets again what was set before: a = 3"),
        ("[n]\nx = 1\n[n]\ny = 1", r"line 3 sets again what was set before: \[n\]"),
        ("a = 1\r\nb c = 2\r\n", "line 2.*: b c = 2$"),
    ],
)
def test_an_error_in_toml_shows_the_line(text, told):
    with pytest.raises(LocalError, match=told):
        parse_toml(text, "it")


@pytest.mark.parametrize("make", [pipe, folder, device])
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path, make):
    make(tmp_path / "it")
    with pytest.raises(LocalError, match="not a manifest: give the path of a file"):
        read_bounded(tmp_path / "it", 100, "manifest")


def test_a_link_is_followed_unless_it_is_not_to_be(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link", "manifest") as opened:
        assert opened.read() == b"x"
    with pytest.raises(LocalError, match="is a link, not a manifest"):
        open_regular(tmp_path / "link", "manifest", follow=False)
    with open_regular(tmp_path / "file", "manifest", follow=False) as opened:
        assert opened.read() == b"x"


def test_a_file_is_read_up_to_its_limit_and_refused_beyond(tmp_path):
    (tmp_path / "it").write_bytes(bytes(100))
    assert len(read_bounded(tmp_path / "it", 100, "manifest")) == 100
    with pytest.raises(LocalError, match="larger than 99 bytes"):
        read_bounded(tmp_path / "it", 99, "manifest")


def test_a_file_that_is_not_there_is_told_from_one_that_cannot_be_read(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NoSuchFile):
        read_bounded(tmp_path / "it", 100, "manifest")
    with pytest.raises(LocalError, match="Not a directory") as refused:
        read_bounded(tmp_path / "file" / "it", 100, "manifest")
    assert not isinstance(refused.value, NoSuchFile)


def test_a_path_with_a_zero_byte_is_refused(tmp_path):
    with pytest.raises(LocalError, match="zero byte"):
        read_bounded(tmp_path / "a\0b", 100, "manifest")


HOSTILE = {
    "3,000 nested lists": "x = " + "[" * 3_000,
    "lists that tomllib takes": "x = " + "[" * 100 + "]" * 100,
    "nested dotted keys": ".".join("a" * 900) + " = 1",
    "32,000 dots in a key": ".".join("a" * 32_000) + " = 1",
    "an integer of 5,000 digits": "x = " + "1" * 5_000,
    "a hexadecimal integer of 5,000 digits": "x = 0x" + "f" * 5_000,
    "a zero byte": "\0",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_toml_is_one_error_at_once(text):
    began = time.monotonic()
    with pytest.raises(LocalError, match=r"^mine\.toml is not valid TOML"):
        parse_toml(text, "mine.toml")
    assert time.monotonic() - began < 5  # 32,000 dots took half a minute


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_manifest_is_refused(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(LocalError, match=r"not valid TOML|zero byte"):
        load_manifest(str(tmp_path / "mine.toml"))


def test_a_manifest_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(LocalError, match="not UTF-8"):
        load_manifest(str(tmp_path / "mine.toml"))


def test_a_manifest_of_more_bytes_than_one_may_have_is_refused(tmp_path):
    (tmp_path / "mine.toml").write_text("#" * 65_537)
    with pytest.raises(LocalError, match="larger than 65,536 bytes"):
        load_manifest(str(tmp_path / "mine.toml"))


def test_a_thousand_damaged_manifests_each_load_or_are_one_error(tmp_path):
    rng, refused = random.Random(1), 0
    text = render_manifest(load_manifest("starter")).encode()
    for _ in range(1_000):
        (tmp_path / "mine.toml").write_bytes(mutated(text, rng))
        try:
            load_manifest(str(tmp_path / "mine.toml"))
        except LocalError:
            refused += 1
    assert 100 < refused < 1_000


@pytest.mark.parametrize("character", [*STEERING, *HIDDEN], ids=lambda character: f"U+{ord(character):04X}")
def test_nothing_that_steers_a_terminal_or_hides_in_a_line_is_printable(character):
    assert printable(f"a{character}b").isprintable()
    assert character == " " or character not in printable(f"a{character}b")
    assert str(LocalError(f"a{character}b")).isprintable()
    assert str(RemoteError(Layer.BODY, f"a{character}b")).isprintable()


def test_ordinary_text_of_any_language_stays_as_it_is():
    assert printable("naïve 学习 שלום 😀 a/b [x] \\") == "naïve 学习 שלום 😀 a/b [x] \\"


def test_foreign_strings_are_written_as_printable_toml_that_reads_back():
    value = "".join([*STEERING[:-2], *HIDDEN]) + 'ordinary "text" 😀'  # TOML has no lone surrogates
    written = toml_value({value: [value]})
    assert written.isprintable()
    assert parse_toml(f"x = {written}", "it")["x"] == {value: [value]}


def test_a_rendered_manifest_cannot_steer_a_terminal():
    evil = parse_manifest(
        render_manifest(load_manifest("starter")).replace('"products"', r'"evil\u001b[31m\u009b\u202e"', 1), "it"
    )
    assert render_manifest(evil).replace("\n", "").isprintable()
    assert parse_manifest(render_manifest(evil), "it").network_id == evil.network_id


@pytest.mark.parametrize("length", [1, 70_000])
def test_an_error_that_quotes_a_value_is_bounded_and_ends_with_what_to_do(length):
    manifest = render_manifest(load_manifest("starter")).replace('"starter"', f'"{"X" * length}"', 1)
    with pytest.raises(LocalError, match=r"not beginning with -$") as refused:
        parse_manifest(manifest, "it")
    assert len(str(refused.value)) < 5_000


def test_a_refusal_of_a_peer_is_bounded_too():
    assert len(str(RemoteError(Layer.BODY, "x" * 70_000))) < 5_000
