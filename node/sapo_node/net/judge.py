"""One judgement per content: asks the node about each distinct message once and remembers that it did.

A content is marked before the node is asked, so two copies that arrive together are one question. ACCEPT and
REJECT are remembered long; IGNORE, which depends on clock and quota, only long enough to absorb one flood.
"""

import hashlib
import logging
from collections import OrderedDict

import trio

from sapo_node.net.interface import Handle, Verdict

log = logging.getLogger(__name__)

SETTLED_SECONDS = 600.0
IGNORED_SECONDS = 20.0
CAPACITY = 65_536  # contents; about 10 MB


def content_id(data: bytes) -> bytes:
    """The identity of a message: SHA-256 of its bytes."""
    return hashlib.sha256(data).digest()


class Judge:
    """Bounded memory of verdicts in front of the node's `handle`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        # Content id -> when to forget it, oldest first by insertion; infinity while the node is being asked.
        self._known: OrderedDict[bytes, float] = OrderedDict()

    async def ask(self, sender: str, data: bytes) -> Verdict | None:
        """The node's verdict on a content that is new; None for one that is known or being judged."""
        key = content_id(data)
        if trio.current_time() < self._known.get(key, 0.0):
            return None
        self._remember(key, float("inf"))
        verdict = Verdict.IGNORE
        try:
            verdict = await self._handle(sender, data)
        except Exception:  # A fault of the node must not end the peer's connection, let alone the service.
            log.exception("the message handler failed; the message is ignored")
        finally:
            # Also reached by cancellation: an unanswered question may be asked again.
            lifetime = IGNORED_SECONDS if verdict is Verdict.IGNORE else SETTLED_SECONDS
            self._remember(key, trio.current_time() + lifetime)
        return verdict

    def settle(self, data: bytes) -> None:
        """Never ask about a content of our own that comes back."""
        self._remember(content_id(data), trio.current_time() + SETTLED_SECONDS)

    def _remember(self, key: bytes, until: float) -> None:
        self._known[key] = until
        self._known.move_to_end(key)
        if len(self._known) > CAPACITY:
            self._known.popitem(last=False)
