"""Cases of kind `message`: the frame around envelope and bodies (MSG-2)."""

from collections.abc import Iterable, Iterator

from cases import Case
from example import GROUP
from message_cases import refused
from rounds import Round
from wire import ARRAY, BYTES, FALSE, NULL, array, bstr, group, head, table, text, uint

BODY = b"plain"
"""Not a valid body, but valid as the content of a byte string or a text: this layer accepts any bytes."""

CONTENT = Round((group(BODY),))
ENVELOPE, BODIES = bstr(CONTENT.envelope), array([bstr(BODY)])
MESSAGE = CONTENT.message(BODY)


def cases() -> Iterable[Case]:
    yield from _shapes()
    yield from _envelopes()
    yield from _bodies()
    yield from _long_heads()
    yield from _encodings()
    yield from _claims()


def _refused(name: str, data: bytes, *, rule: str = "MSG-2", grammar: bool | None = False, note: str = "") -> Case:
    return refused(name, rule, "frame", data, grammar=grammar, note=note)


def _shapes() -> Iterator[Case]:
    shapes = {
        "no bytes": b"",
        "an array of none": array([]),
        "an array of one": array([ENVELOPE]),
        "an array of three": array([ENVELOPE, BODIES, array([])]),
        "a map of envelope and bodies": table(("bodies", BODIES), ("envelope", ENVELOPE)),
        "a byte string around the message": bstr(MESSAGE),
        "the envelope alone": CONTENT.envelope,
        "bodies before the envelope": array([BODIES, ENVELOPE]),
        "a text": text("hello"),
    }
    for name, data in shapes.items():
        yield _refused(name, data)


def _envelopes() -> Iterator[Case]:
    envelopes = {
        "an envelope in no byte string": CONTENT.envelope,
        "an envelope in hexadecimal": text(CONTENT.envelope.hex()),
        "an envelope in an array": array([ENVELOPE]),
        "false in place of an envelope": FALSE,
    }
    for name, part in envelopes.items():
        yield _refused(name, array([part, BODIES]))


def _bodies() -> Iterator[Case]:
    bodies = {
        "a body beside the envelope and in no array": bstr(BODY),
        "a body as text": array([text("plain")]),
        "a body in an array of its own": array([BODIES]),
        "bodies in a map": table(("0", bstr(BODY))),
        "bodies in a byte string": bstr(BODIES),
        "a number of bodies": uint(1),
    }
    for name, part in bodies.items():
        yield _refused(name, array([ENVELOPE, part]))
    absent = {"null": NULL, "false": FALSE, "an empty array": array([]), "an empty text": text("")}
    for name, value in absent.items():
        note = "A body left out is an empty byte string."
        yield _refused(f"{name} for a body left out", array([ENVELOPE, array([value])]), note=note)
    note = "A header cannot list as many groups either, but the frame is asked first."
    sixteen = Round([GROUP] * 16)
    yield _refused("seventeen bodies", sixteen.message(*[b""] * 17), note=note)


def _long_heads() -> Iterator[Case]:
    content = CONTENT.envelope
    heads = {
        "the frame in a long form": head(ARRAY, 2, 1) + ENVELOPE + BODIES,
        "the length of the envelope in a long form": array([head(BYTES, len(content), 4) + content, BODIES]),
        "the number of bodies in a long form": array([ENVELOPE, head(ARRAY, 1, 1) + bstr(BODY)]),
        "the length of a body in a long form": array([ENVELOPE, array([head(BYTES, len(BODY), 1) + BODY])]),
        "the length of a body left out in a long form": array([ENVELOPE, array([head(BYTES, 0, 1)])]),
    }
    for name, data in heads.items():
        yield _refused(name, data, rule="ENC-4", grammar=True)


def _encodings() -> Iterator[Case]:
    end = b"\xff"
    indefinite = {
        "an indefinite frame": b"\x9f" + ENVELOPE + BODIES + end,
        "an indefinite envelope": array([b"\x5f" + ENVELOPE + end, BODIES]),
        "indefinite bodies": array([ENVELOPE, b"\x9f" + bstr(BODY) + end]),
        "an indefinite body": array([ENVELOPE, array([b"\x5f" + bstr(BODY) + end])]),
    }
    for name, data in indefinite.items():
        yield _refused(name, data, rule="ENC-3", grammar=True)
    yield _refused("a tag around the message", bytes.fromhex("d9 d9f7") + MESSAGE, rule="ENC-2", grammar=None)
    tagged = array([bytes.fromhex("d8 18") + ENVELOPE, BODIES])
    yield _refused("a tag around the envelope", tagged, rule="ENC-2")
    yield _refused("the last byte is missing", MESSAGE[:-1], rule="ENC-1")
    yield _refused("the message ends after the envelope", head(ARRAY, 2) + ENVELOPE, rule="ENC-1")
    yield _refused("a byte follows", MESSAGE + b"\x00", rule="ENC-1", grammar=None)
    yield _refused("a second message follows", MESSAGE + MESSAGE, rule="ENC-1", grammar=None)


def _claims() -> Iterator[Case]:
    content = CONTENT.envelope
    more, largest = len(content) + 1_000, 2**64 - 1
    claims = {
        "an envelope that claims more than there is": array([head(BYTES, more) + content, BODIES]),
        "an envelope that claims 2 to the 64 less one": array([head(BYTES, largest) + content, BODIES]),
        "bodies that claim 2 to the 32": array([ENVELOPE, head(ARRAY, 2**32) + bstr(BODY)]),
        "bodies that claim 2 to the 64 less one": array([ENVELOPE, head(ARRAY, largest) + bstr(BODY)]),
        "a body that claims a byte more than there is": array([ENVELOPE, array([head(BYTES, len(BODY) + 1) + BODY])]),
        "a frame that claims 2 to the 63": head(ARRAY, 2**63) + ENVELOPE + BODIES,
    }
    for name, data in claims.items():
        yield _refused(name, data, rule="ENC-10")
