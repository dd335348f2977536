"""Why the validator sets a message aside that nothing proves wrong."""

from enum import StrEnum

from sapo_node.net.interface import Verdict


class Ignored(StrEnum):
    """The reasons of IGNORE and BUSY."""

    SENDER_BUSY = "sender over its rate"
    LINK_BUSY = "link over its rate for strangers"
    SENDER_BANNED = "sender banned"
    ISSUER_BANNED = "issuer banned"
    DUPLICATE = "duplicate"
    OUTSIDE_WINDOW = "outside the epoch window"
    OVER_QUOTA = "issuer over its quota"
    EQUIVOCATION = "equivocation"
    KNOWN_EVIDENCE = "evidence known or over its budget"

    @property
    def verdict(self) -> Verdict:
        """BUSY where only the peer that sent the message is at fault: the same message from another peer is welcome."""
        return Verdict.BUSY if self in (Ignored.SENDER_BUSY, Ignored.LINK_BUSY) else Verdict.IGNORE
