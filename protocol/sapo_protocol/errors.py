"""The closed family of errors, split by whose fault it is.

`LocalError`: ours or our operator's to fix; its text is one line that names the fix.
`RemoteError`: what a peer sent is wrong; it carries the layer that refused and a closed reason, so that
every refusal can be counted. Outside data may raise nothing else: each boundary converts once.
"""

from enum import StrEnum

from .printable import printable


class SapoError(Exception):
    """Root of every error this project raises on purpose. `str` is printable, whatever foreign data the text quotes."""

    def __str__(self) -> str:
        return printable(super().__str__())


class LocalError(SapoError):
    """Something on this machine is wrong. The message is one line and names the fix."""


class Layer(StrEnum):
    """The layer that refuses, named as in the spec (conventions): those of a message first, in the order asked."""

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
    """What a peer sent breaks a rule. `layer` decided; the message says which rule, for a log."""

    def __init__(self, layer: Layer, message: str) -> None:
        super().__init__(layer, message)
        self.layer = layer
        self._message = message

    def __str__(self) -> str:
        # Written out only where somebody reads it: a flood of refusals must stay cheap.
        return printable(f"{self.layer}: {self._message}")
