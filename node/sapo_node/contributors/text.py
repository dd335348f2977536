"""Foreign text as completions of the wire."""

from collections.abc import Sequence

from sapo_node.groups.messages import Finish, Sampled
from sapo_protocol.printable import printable as printable_line


def completion(text: str, finish: Finish, max_bytes: int) -> Sampled:
    """A text as everybody may receive it; what exceeds the swarm's limit in UTF-8 bytes is cut and counts as truncated.

    Markers of any model in it stay what they are for the wire, plain text.
    """
    data = text.encode("utf-8", "replace")  # JSON can name half of a character
    if len(data) > max_bytes:
        return Sampled(data[:max_bytes].decode("utf-8", "ignore"), "length")
    return Sampled(data.decode(), finish)


def filled(given: Sequence[Sampled], completions: int) -> tuple[Sampled, ...]:
    """Exactly G completions, as the wire requires: a completion that was not given is empty and counts as incorrect."""
    return (*given, *[Sampled("", "length")] * (completions - len(given)))


def printable(text: str, length: int = 200) -> str:
    """What others wrote as one short line that cannot steer a terminal."""
    return printable_line(text[:length].strip())
