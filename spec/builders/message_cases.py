"""Builds cases of kind `message`."""

from collections.abc import Iterable, Mapping, Sequence

from cases import ACCEPT, Case
from rounds import NOW_MS, Round
from wire import EXAMPLE, Swarm


def passes(
    name: str,
    rule: str,
    data: bytes,
    content: Round,
    *,
    now_ms: int = NOW_MS,
    earlier: Iterable[bytes] = (),
    note: str = "",
) -> Case:
    """`content` is the round that the message must hold."""
    output = content.slot | {"envelope_id": content.envelope_id}
    fields = _input(data, content.swarm, now_ms, list(earlier))
    return Case(name, rule, "message", fields, ACCEPT, output, note, grammar=True)


def refused(
    name: str,
    rule: str,
    layer: str,
    data: bytes,
    *,
    grammar: bool | None = True,
    swarm: Swarm = EXAMPLE,
    now_ms: int = NOW_MS,
    earlier: Iterable[bytes] = (),
    note: str = "",
) -> Case:
    fields = _input(data, swarm, now_ms, list(earlier))
    return Case(name, rule, "message", fields, layer, note=note, grammar=grammar)


def _input(data: bytes, swarm: Swarm, now_ms: int, earlier: Sequence[bytes]) -> Mapping[str, object]:
    return {"manifest": swarm.encoded(), "now_ms": now_ms, "earlier": earlier, "bytes": data}
