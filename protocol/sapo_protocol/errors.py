"""The errors that this project raises on purpose.

`LocalError`: the operator can fix it. Its text is one line that names the fix.
`RemoteError`: a peer sent something that breaks a rule. The error names the layer that refused it, so that the node can
count refusals by layer. Data from outside raises no other error: each boundary converts the errors of libraries once.
"""

from enum import StrEnum

from .printable import printable

MAX_CHARACTERS = 4_000
"""Characters of a message, at most. A message may quote a value of any length; what it quotes is in its middle."""


class SapoError(Exception):
    """Base of both errors. `str` returns a printable line of bounded length, even if it quotes data from outside."""

    def __str__(self) -> str:
        return _line(super().__str__())


class LocalError(SapoError):
    """An error that the operator of this machine can fix. The message is one line and names the fix."""


class Layer(StrEnum):
    """The layer that refuses, named as in the spec (conventions).

    The layers of a message come first, in the order in which they check it.
    """

    SIZE = "size"
    FRAME = "frame"
    ENVELOPE = "envelope"
    SIGNATURE = "signature"
    HEADER = "header"
    BODY = "body"
    EVIDENCE = "evidence"
    PULL = "pull"
    ENCODING = "encoding"
    MANIFEST = "manifest"
    TOPIC = "topic"


class RemoteError(SapoError):
    """A peer sent something that breaks a rule. `layer` is the layer that refused it; the message gives the reason."""

    def __init__(self, layer: Layer, message: str) -> None:
        super().__init__(layer, message)
        self.layer = layer
        self._message = message

    def __str__(self) -> str:
        # Formatted only when it is printed: a flood of refusals must stay cheap.
        return _line(f"{self.layer}: {self._message}")


def _line(text: str) -> str:
    half = MAX_CHARACTERS // 2
    return printable(text if len(text) <= MAX_CHARACTERS else f"{text[:half]} … {text[-half:]}")
