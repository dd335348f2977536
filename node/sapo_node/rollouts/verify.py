"""Verifies an export again, offline: every signature, every task, every level, and that the columns say the same.

The files are foreign. What is in them is compared with what the issuers signed, and never believed. A few kilobytes of
Parquet can hold billions of numbers or of rows, so memory and failures have a bound.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sapo_node.groups.prompt import task_name
from sapo_node.processes.limits import memory_at_most
from sapo_node.rollouts.export import GROUPS, require_pyarrow, schema
from sapo_node.verification.verifier import Scorer, compare, request_for
from sapo_protocol import (
    Layer,
    LocalError,
    Manifest,
    RemoteError,
    Rollout,
    decode_body,
    decode_header,
    match_bodies,
    open_envelope,
    parse_envelope,
    peer_id,
)
from sapo_protocol.files import open_regular

MEMORY = 2 * 2**30
"""Bytes that reading an export may take. One whose groups fill messages of 1 MB takes 0.6 GB."""
READ_ROWS = 16
"""Rows that are in memory at one time."""
MAX_FAILURES = 1_000
"""Groups that do not hold, after which the rest is not read."""


@dataclass(slots=True)
class Verification:
    """The findings."""

    groups: int = 0
    """Groups that were read."""
    failures: Counter[str] = field(default_factory=Counter)
    """Groups that do not hold, by the first check that failed."""

    @property
    def holds(self) -> bool:
        """True if there are groups, and every one of them holds."""
        return self.groups > 0 and not self.failures

    @property
    def ended_early(self) -> bool:
        """True if the check ended early, because too many groups do not hold."""
        return self.failures.total() >= MAX_FAILURES


async def verify(folder: Path, manifest: Manifest, scorer: Scorer) -> Verification:
    """Verify each group of an export, up to MAX_FAILURES that do not hold. Raises LocalError if the file cannot be
    read.
    """
    try:
        with memory_at_most(MEMORY):
            return await _verify(folder, manifest, scorer)
    except MemoryError as error:
        raise LocalError(
            f"{folder / GROUPS} unfolds to more than {MEMORY / 2**30:g} GiB: no export of sapo-node does"
        ) from error


async def _verify(folder: Path, manifest: Manifest, scorer: Scorer) -> Verification:
    found = Verification()
    seen: set[tuple[str, int, int, int]] = set()
    for row in _rows(folder / GROUPS):
        found.groups += 1
        reason = await _reason(row, manifest, scorer)
        place = (row["issuer"], row["epoch"], row["counter"], row["k"])
        if not reason and place in seen:
            reason = "the group is there twice"
        if reason:
            found.failures[reason] += 1
            if found.ended_early:
                break
        else:
            seen.add(place)
    return found


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    arrow = require_pyarrow()
    try:
        with open_regular(file, "export") as opened:
            parquet = arrow.parquet.ParquetFile(opened)
            if not parquet.schema_arrow.equals(schema(arrow)):
                raise LocalError(f"{file} has other columns than an export of sapo-node")
            for batch in parquet.iter_batches(batch_size=READ_ROWS):
                yield from batch.to_pylist()
    except MemoryError:  # an error of arrow as well
        raise
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LocalError(f"{file} is no Parquet file, or is damaged: give the folder of an export") from error


async def _reason(row: dict[str, Any], manifest: Manifest, scorer: Scorer) -> str:
    """Return the reason for which a group does not hold; empty if it does. Each is scored alone: one must not fail
    another.
    """
    if any(value is None for value in row.values()):
        return "a column is empty"
    try:
        rollout = _rollout(row, manifest)
        body = decode_body(row["body"], manifest)
    except RemoteError as error:
        return str(error)
    header, k = rollout.header, row["k"]
    (scored,) = await scorer.score([request := request_for(manifest, rollout, k, body)])
    if reason := compare(header.groups[k], scored):
        return reason
    assert scored is not None  # else `compare` has given a reason
    signed = {
        "prompt": scored.prompt,
        "completions": [each.text for each in body.completions],
        "levels": list(scored.levels),
        "top": request.levels,
        "finishes": [each.finish.value for each in body.completions],
        "dataset": task_name(manifest, request.dataset, request.config),
        "issuer": peer_id(rollout.opened.issuer),
        "epoch": header.epoch,
        "counter": header.counter,
        "model": body.model,
    }
    if differing := [name for name, value in signed.items() if row[name] != value]:
        return f"{differing[0]} differs from what was signed"
    return "" if _masks_fit(row["masks"], row["completions"]) else "masks does not fit the completions"


def _masks_fit(masks: list[list[list[int]]], completions: list[str]) -> bool:
    """Return whether each completion has spans of its characters, in order. The masks are only the exporter's claim."""
    try:
        return len(masks) == len(completions) and all(map(_spans_fit, masks, completions))
    except (TypeError, ValueError):  # nothing where a list or a number belongs, or no two numbers
        return False


def _spans_fit(spans: list[list[int]], text: str) -> bool:
    bounds = [0, *(at for begin, end in spans for at in (begin, end)), len(text)]
    return bounds == sorted(bounds)


def _rollout(row: dict[str, Any], manifest: Manifest) -> Rollout:
    """The signed round with the body of this group. Raises RemoteError."""
    opened = open_envelope(parse_envelope(row["envelope"], network_id=manifest.network_id))
    header = decode_header(opened.payload, manifest)
    bodies = tuple(row["body"] if k == row["k"] else None for k in range(len(header.groups)))
    rollout = match_bodies(opened, header, bodies)
    if row["k"] not in range(len(header.groups)):
        raise RemoteError(Layer.HEADER, f"the round has no group {row['k']}")
    return rollout
