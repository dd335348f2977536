"""TCP that can be given up: every socket of one host is known, and closed with it."""

import weakref
from typing import Any

from libp2p.transport.tcp.tcp import TCP


class TrackedTcp(TCP):  # type: ignore[misc]
    """TCP that knows its sockets: the library leaves them open when it fails, or has no time to close them."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self.listeners: list[Any] = []

    def create_listener(self, handler_function: Any) -> Any:
        self.listeners.append(super().create_listener(handler_function))
        return self.listeners[-1]

    def give_up(self) -> None:
        """Close them all. A listener left behind would take connections from the one of the next life."""
        for stream in list(self.opened):
            stream.stream.socket.close()
        for listener in self.listeners:
            if listener._nursery is not None:  # noqa: SLF001 - closing its sockets under it would end the process
                listener._nursery.cancel_scope.cancel()  # noqa: SLF001

    async def dial(self, maddr: Any) -> Any:
        raw = await super().dial(maddr)
        self.opened.add(raw.stream)
        return raw
