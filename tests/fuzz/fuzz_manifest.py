"""A manifest or a configuration in TOML: it is taken, or one error of ours says in one printable line why not."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import MANIFEST, Source, refusal_is_a_line

from sapo_node.app.config import Config, load_config, render_config
from sapo_protocol import load_manifest, render_manifest

_TEMPORARY = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
FILE = Path(_TEMPORARY.name) / "mine.toml"
GOOD = render_manifest(MANIFEST).encode()
MANIFEST_LINES = GOOD.split(b"\n")
CONFIG_LINES = [line for line in render_config(Config()).encode().split(b"\n") if line and not line.startswith(b"#")]
VALUES = (b"-1", b"0", b"1e999", b"nan", b"true", b'""', b'"\\u202e"', b"[]", b"{}", b"1979-05-27", b"9" * 30, b"0x7f")


def fuzz(data: bytes) -> None:
    source = Source(data)
    if source.number() & 1:
        FILE.write_bytes(changed(CONFIG_LINES, source))
        with refusal_is_a_line():
            load_config(FILE)
        return
    FILE.write_bytes(changed(MANIFEST_LINES, source))
    with refusal_is_a_line():
        manifest = load_manifest(str(FILE))
        rendered = render_manifest(manifest)
        assert rendered.replace("\n", "").isprintable()
        FILE.write_text(rendered)
        assert load_manifest(str(FILE)).network_id == manifest.network_id


def changed(lines: list[bytes], source: Source) -> bytes:
    """Bytes as they are, or good lines of which some have another value or place."""
    if source.number() & 1:
        return source.rest()
    lines = list(lines)
    while source:
        at = source.below(len(lines))
        match source.below(5):
            case 0:
                lines[at] = lines[at].partition(b"=")[0] + b"= " + VALUES[source.below(len(VALUES))]
            case 1:
                lines[at] = lines[at].partition(b"=")[0] + b"= " + source.string()
            case 2:
                lines.insert(at, source.string())
            case 3:
                del lines[at:-1]
            case 4:
                lines.insert(at, lines[source.below(len(lines))])
    return b"\n".join(lines)


def seeds() -> Iterator[bytes]:
    yield b"\0\1" + GOOD
    yield b"\1\1" + render_config(Config()).encode()
    for number in range(len(VALUES)):
        yield bytes([0, 0, number, 0, number])
        yield bytes([1, 0, 3 * number, 0, number])
    for text in (b"x = " + b"[" * 100, b"a" * 50 + b".b" * 50 + b" = 1", b'x = "\\ud800"', b"x = 1__0", b"\xff"):
        yield b"\0\1" + text
