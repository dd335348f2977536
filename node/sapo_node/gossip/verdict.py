"""The node's decision about one message."""

from enum import Enum


class Verdict(Enum):
    """The node's decision about one message."""

    ACCEPT = "accept"  # forward it; never ask again about this content
    KEEP = "keep"  # the node took it, but do not forward it; never ask again about this content
    IGNORE = "ignore"  # do not forward it; ask again if it comes back later
    BUSY = "busy"  # do not forward it; another peer may bring it at once, and is asked about it
    REJECT = "reject"  # do not forward it; the bytes alone prove it wrong, so never ask again
