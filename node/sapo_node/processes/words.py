"""Reads what a child process writes to stderr, for the log.

A child that inherited stderr would write to the operator's terminal. Libraries in it quote foreign text there as it is:
transformers prints the names of tensors in a model folder.
"""

from collections.abc import Callable

import trio

from sapo_protocol.printable import excerpt

LINES = 20
"""Lines of one read that are told, at most: the last ones."""
_PAUSE = 0.1
"""Seconds until the next read if there were more. So the child waits, and the node goes on."""
_CHUNK = 65_536


async def listen(stream: trio.abc.ReceiveStream, tell: Callable[[str], None]) -> None:
    """Call `tell` with each line of a stream until it ends, as `excerpt` makes it. Empty lines are left out.

    The last line may lack a line break, and is told also where this is cancelled.
    """
    rest = b""
    try:
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-_CHUNK:]
            if len(lines) > LINES:
                tell(f"({len(lines) - LINES} lines left out)")
            for line in lines[-LINES:]:
                _tell(line, tell)
            if len(lines) > LINES:
                await trio.sleep(_PAUSE)
    except (trio.ClosedResourceError, trio.BrokenResourceError):
        pass
    finally:
        _tell(rest, tell)


def _tell(line: bytes, tell: Callable[[str], None]) -> None:
    if words := excerpt(line.decode("utf-8", "replace")):
        tell(words)
