"""The decoders of the protocol, from the bytes of a message to a rollout, as one value.

`Ingest`, `Book` and `Verifier` take it at construction. A node has `WIRE`, the functions of `sapo_protocol`. An
experiment that measures one of them builds a node with another function:

    replace(WIRE, open_envelope=accept_any_signature)
"""

from collections.abc import Callable
from dataclasses import dataclass

from sapo_protocol import (
    Body,
    Header,
    Manifest,
    Opened,
    Rollout,
    Sealed,
    decode_body,
    decode_header,
    decode_message,
    match_bodies,
    open_envelope,
    parse_envelope,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The decoders of a node."""

    decode_message: Callable[[bytes, Manifest], tuple[bytes, tuple[bytes | None, ...]]] = decode_message
    parse_envelope: Callable[..., Sealed] = parse_envelope
    """`parse_envelope(envelope, network_id=...)`."""
    open_envelope: Callable[[Sealed], Opened] = open_envelope
    decode_header: Callable[[bytes, Manifest], Header] = decode_header
    decode_body: Callable[[bytes, Manifest], Body] = decode_body

    def open_message(self, data: bytes, manifest: Manifest) -> Rollout:
        """Decode a message and verify its signature, as `sapo_protocol.open_message` does. Raises RemoteError."""
        envelope, bodies = self.decode_message(data, manifest)
        opened = self.open_envelope(self.parse_envelope(envelope, network_id=manifest.network_id))
        return match_bodies(opened, self.decode_header(opened.payload, manifest), bodies)


WIRE = Wire()
"""The decoders that every node has."""
