"""A TCP transport that knows every socket of its host, so that it can close them all."""

import weakref
from typing import Any

from libp2p.transport.tcp.tcp import TCP


class TrackedTcp(TCP):  # type: ignore[misc]
    """TCP that knows its sockets. The library leaves them open if it fails or has no time to close them."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self.listeners: list[Any] = []

    def create_listener(self, handler_function: Any) -> Any:
        self.listeners.append(super().create_listener(handler_function))
        return self.listeners[-1]

    def give_up(self) -> None:
        """Close all sockets. An open listener would take connections from the listener of the next session."""
        for stream in list(self.opened):
            stream.stream.socket.close()
        for listener in self.listeners:
            if listener._nursery is not None:  # noqa: SLF001 - closing its sockets while it runs would end the process
                listener._nursery.cancel_scope.cancel()  # noqa: SLF001

    async def dial(self, maddr: Any) -> Any:
        raw = await super().dial(maddr)
        self.opened.add(raw.stream)
        return raw
