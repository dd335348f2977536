"""Turns text from outside into completions of the wire."""

from collections.abc import Sequence

from sapo_node.groups.messages import Finish, Sampled


def completion(text: str, finish: Finish, max_bytes: int) -> Sampled:
    """Return the completion with this text. A text of more than `max_bytes` UTF-8 bytes is cut and counts as truncated.

    Special tokens of any model stay plain text, as they are on the wire.
    """
    data = text.encode("utf-8", "replace")  # JSON can hold half of a surrogate pair
    if len(data) > max_bytes:
        return Sampled(data[:max_bytes].decode("utf-8", "ignore"), "length")
    return Sampled(data.decode(), finish)


def filled(given: Sequence[Sampled], completions: int) -> tuple[Sampled, ...]:
    """Return exactly G completions, as the wire requires. A missing completion is empty and counts as incorrect."""
    return (*given, *[Sampled("", "length")] * (completions - len(given)))
