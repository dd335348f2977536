"""A polluter: it has a valid key and sends what it likes under it.

In turn: answers it never worked out, claimed as right; other peers' text under its own name; and bytes that are no
message. Its signatures, epochs, counters and task digests are in order, so nothing but verification tells it from a
peer.
"""

import hashlib
import random
from collections import deque
from collections.abc import Callable

from sapo_protocol import (
    Assignment,
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    Manifest,
    RemoteError,
    assign,
    decode_body,
    decode_message,
    encode_body,
    encode_header,
    encode_message,
    seal,
)

GROUPS = 4
_HEARD = 64


class Polluter:
    """Makes the messages of one polluting peer."""

    def __init__(
        self,
        manifest: Manifest,
        issuer: bytes,
        sign: Callable[[bytes], bytes],
        digest: Callable[[Assignment], bytes],
        rng: random.Random,
    ) -> None:
        """`digest` tells the digest of question and answer, which an honest header needs and a polluter can compute
        as well.
        """
        self._manifest = manifest
        self._issuer = issuer
        self._sign = sign
        self._digest = digest
        self._rng = rng
        self._heard: deque[Body] = deque(maxlen=_HEARD)

    def hear(self, message: bytes) -> None:
        """Remember the text of another peer's message, for later use."""
        try:
            _, bodies = decode_message(message, self._manifest)
            self._heard.extend(decode_body(body, self._manifest) for body in bodies if body is not None)
        except RemoteError:
            return

    def message(self, epoch: int, counter: int) -> bytes:
        """What it sends as its round (epoch, counter)."""
        match counter % 3:
            case 0:
                return self._lie(epoch, counter, [self._invented() for _ in range(GROUPS)])
            case 1 if self._heard:
                return self._lie(epoch, counter, [self._rng.choice(self._heard) for _ in range(GROUPS)])
            case _:
                return self._rng.randbytes(200)

    def _invented(self) -> Body:
        texts = [
            f"I am sure. <answer>{self._rng.randrange(10_000)}</answer>" for _ in range(self._manifest.completions)
        ]
        return Body(tuple(Completion(text, Finish.STOP) for text in texts))

    def _lie(self, epoch: int, counter: int, bodies: list[Body]) -> bytes:
        """A flawless envelope over claims that are half true at best: mixed, since those are what others want."""
        claims = tuple(number % 2 == 0 for number in range(self._manifest.completions))
        encoded = [encode_body(body) for body in bodies]
        groups = tuple(
            GroupHeader(
                self._digest(assign(self._manifest, self._issuer, epoch, counter, k)),
                claims,
                hashlib.sha256(body).digest(),
            )
            for k, body in enumerate(encoded)
        )
        payload = encode_header(Header(epoch, counter, groups))
        envelope = seal(payload, issuer=self._issuer, sign=self._sign, network_id=self._manifest.network_id)
        return encode_message(envelope, tuple(encoded))
