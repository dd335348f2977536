"""The errors that this project raises on purpose.

`LocalError`: the operator can fix it. Its text is one line that names the fix.
`RemoteError`: a peer sent something that breaks a rule. It carries the layer that refused, so that refusals can be
counted. Data from outside raises nothing else: each boundary converts other errors once.
"""

from enum import StrEnum

from .printable import printable


class SapoError(Exception):
    """Base of both errors. `str` gives printable text, whatever foreign data the message quotes."""

    def __str__(self) -> str:
        return printable(super().__str__())


class LocalError(SapoError):
    """An error that the operator of this machine can fix. The message is one line and names the fix."""


class Layer(StrEnum):
    """The layer that refuses, named as in the spec (conventions). Those of a message come first, in step order."""

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
    """What a peer sent breaks a rule. `layer` refused it; the message says why, for a log."""

    def __init__(self, layer: Layer, message: str) -> None:
        super().__init__(layer, message)
        self.layer = layer
        self._message = message

    def __str__(self) -> str:
        # Formatted only when it is printed: a flood of refusals must stay cheap.
        return printable(f"{self.layer}: {self._message}")
