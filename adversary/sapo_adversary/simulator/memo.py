"""Computes pure stages once for a whole simulated swarm: all nodes decode the same bytes.

A result is a function of the content alone, so that the record of a run is the same without this module; a test plays
both. `memoised` returns the decoders that nodes are built with. It replaces the other functions in this process until
the block ends.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

import sapo_node.gossip.machine
import sapo_node.groups.book
import sapo_node.groups.wire
import sapo_node.ingest.validator
from sapo_node.groups.wire import Wire

REMEMBERED = 20_000
"""Results of a stage that are kept at most; then all are forgotten at once."""

Key = Callable[..., Hashable]


def _first(content: Hashable, *_: Any, **__: Any) -> Hashable:
    """The content alone: manifest and network are the same for a whole swarm."""
    return content


def _all(*contents: Hashable) -> Hashable:
    return contents


def _signed(message: Any) -> Hashable:
    """All fields of a gossip message, which has one topic."""
    return message.topics[0], message.data, message.author, message.seqno, message.signature, message.key


def _envelope_and_bodies(opened: Any, _header: Any, bodies: Hashable) -> Hashable:
    """Without the header: the envelope holds it."""
    return opened.envelope, bodies


_PURE: tuple[tuple[Any, str, Key], ...] = (
    (sapo_node.gossip.machine, "message_id", _all),
    (sapo_node.gossip.machine, "is_strictly_signed", _signed),
    (sapo_node.ingest.validator, "match_bodies", _envelope_and_bodies),
    (sapo_node.groups.wire, "match_bodies", _envelope_and_bodies),
    (sapo_node.groups.book, "encode_message", _all),
)
"""Functions of the node, each with the key of its result."""


@contextmanager
def memoised(wire: Wire) -> Iterator[Wire]:
    """Keep the results of pure stages until the end of the block; yields decoders that do."""
    with ExitStack() as stack:
        for owner, name, key in _PURE:
            function = getattr(owner, name)
            stack.callback(setattr, owner, name, function)
            setattr(owner, name, _remembering(function, key))
        yield replace(
            wire,
            decode_message=_remembering(wire.decode_message, _first),
            parse_envelope=_remembering(wire.parse_envelope, _first),
            open_envelope=_remembering(wire.open_envelope, _first),
            decode_header=_remembering(wire.decode_header, _first),
            decode_body=_remembering(wire.decode_body, _first),
        )


def _remembering(function: Callable[..., Any], key: Key) -> Callable[..., Any]:
    known: dict[Hashable, Any] = {}

    @wraps(function)
    def remembered(*arguments: Any, **settings: Any) -> Any:
        place = key(*arguments, **settings)
        if place not in known:
            if len(known) >= REMEMBERED:
                known.clear()
            known[place] = function(*arguments, **settings)
        return known[place]

    return remembered
