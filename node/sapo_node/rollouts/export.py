"""Writes the rollouts that a node kept as a data set: Parquet, the manifest of the swarm, and a card."""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from sapo_node.groups import book
from sapo_node.groups.record import Entry
from sapo_node.processes.extras import command_for
from sapo_node.storage.database import Database
from sapo_node.storage.files import new_folder
from sapo_protocol import LocalError, Manifest, decode_body, render_manifest

GROUPS, SWARM, CARD = "rollouts.parquet", "swarm.toml", "README.md"
BATCH_ROWS = 256
"""Rows that are in memory at one time."""


def require_pyarrow() -> Any:
    """Return pyarrow with its Parquet part. Raises LocalError if it is not installed."""
    if find_spec("pyarrow") is None:
        raise LocalError(f"pyarrow is not installed, which reads and writes Parquet: {command_for('data')}")
    import_module("pyarrow.parquet")
    return import_module("pyarrow")


def schema(arrow: Any) -> Any:
    """Return the schema: one row for each group."""
    texts = arrow.list_(arrow.string())
    return arrow.schema(
        [
            ("prompt", arrow.string()),
            ("completions", texts),
            ("levels", arrow.list_(arrow.uint8())),
            ("top", arrow.uint8()),
            ("finishes", texts),
            ("masks", arrow.list_(arrow.list_(arrow.list_(arrow.int32())))),
            ("dataset", arrow.string()),
            ("issuer", arrow.string()),
            ("epoch", arrow.int64()),
            ("counter", arrow.int64()),
            ("k", arrow.int64()),
            ("model", arrow.string()),
            ("envelope", arrow.binary()),
            ("body", arrow.binary()),
        ]
    )


Row = Mapping[str, Any]
"""One group, by the names of the columns."""

_CARD = """---
configs:
- config_name: default
  data_files: {file}
---

# Rollouts of the swarm {name}

{groups:,} groups of completions by {issuers:,} issuers, epochs {first} to {last}, network {network}.

**The completions were written by unknown peers.** Nobody has read them. They may hold anything: false statements,
instructions to a reader or to a model, personal data. Do not execute them, and do not show them as your own.

The exporting node verified each group: the signature of its issuer holds, the task is the one that the swarm assigned
to the issuer, and the levels are what the node's own scorer found. Groups whose completions are all correct, and
those without a correct one, are not in here. `model` is what the issuer says of itself; nobody has verified it.

| column | what it holds |
|---|---|
| `prompt` | the task, as the node rebuilt it |
| `completions`, `finishes` | the texts, and whether each stopped by itself or was cut |
| `levels` | of each completion, from 0 to `top` |
| `top` | the level of a correct completion: 1 where the task knows correct and incorrect alone |
| `masks` | of each completion, the spans that the filters of the exporting node masked: the first character and the \
one after the last. An empty list stands where nothing was masked, and where the node did not train on the group. \
Nobody signed this column |
| `dataset` | the kind of task, with a number where the manifest has several configurations of a data set |
| `issuer`, `epoch`, `counter`, `k` | the key that signed the round, and the place of the group |
| `model` | the issuer's label of its model; not verified |
| `envelope`, `body` | the signed bytes: the envelope of the round, and the body of this group |

Verify all of it again, offline: `sapo-node rollouts verify FOLDER`. The file {swarm} is the manifest of the swarm.
"""


def export(database: Database, manifest: Manifest, folder: Path) -> int:
    """Write the data set into a new folder. Returns the number of groups.

    Raises LocalError if the folder cannot be made or written, if a stored body does not decode, or if there is
    nothing to export. Where it fails or is stopped, no folder is left; what a killed export leaves is removed by the
    next one beside it.
    """
    require_pyarrow()
    rows = (_row(database, manifest, *kept) for kept in book.signed(database))
    first = next(rows, None)
    if first is None:
        raise LocalError("the node has kept no rollouts of peers; start it with --archive MIB, and wait until it has")
    if os.path.lexists(folder):
        raise LocalError(f"cannot make the folder {folder}: it exists; name one that is not there")
    try:
        with new_folder(folder.absolute(), "rollouts") as made:
            return _write(first, rows, manifest, made)
    except OSError as error:
        said = error.strerror or error
        raise LocalError(
            f"cannot write to {folder}: {said}; free disk space or name another place, and export again"
        ) from error


def _write(first: Row, rows: Iterator[Row], manifest: Manifest, folder: Path) -> int:
    arrow = require_pyarrow()
    issuers, epochs, count = set[str](), [first["epoch"], first["epoch"]], 0
    shape = schema(arrow)
    with arrow.parquet.ParquetWriter(folder / GROUPS, shape, compression="zstd") as writer:
        for batch in _batches(first, rows):
            writer.write_table(arrow.Table.from_pylist(batch, shape))
            issuers |= {row["issuer"] for row in batch}
            epochs = [
                min(epochs[0], *(row["epoch"] for row in batch)),
                max(epochs[1], *(row["epoch"] for row in batch)),
            ]
            count += len(batch)
    (folder / SWARM).write_text(render_manifest(manifest))
    (folder / CARD).write_text(
        _CARD.format(
            file=GROUPS,
            swarm=SWARM,
            name=manifest.name,
            network=manifest.network_id.hex(),
            groups=count,
            issuers=len(issuers),
            first=epochs[0],
            last=epochs[1],
        )
    )
    return count


def _batches(first: Row, rest: Iterator[Row]) -> Iterator[list[Row]]:
    batch = [first, *islice(rest, BATCH_ROWS - 1)]
    while batch:
        yield batch
        batch = list(islice(rest, BATCH_ROWS))


def _row(database: Database, manifest: Manifest, entry: Entry, envelope: bytes, encoded: bytes) -> Row:
    with database.decoding():
        body = decode_body(encoded, manifest)
    return {
        "prompt": entry.prompt,
        "completions": [each.text for each in body.completions],
        "levels": list(entry.levels.each),
        "top": entry.levels.top,
        "finishes": [each.finish.value for each in body.completions],
        "masks": entry.masked_spans() or [[]] * len(body.completions),
        "dataset": entry.dataset,
        "issuer": entry.peer,
        "epoch": entry.epoch,
        "counter": entry.counter,
        "k": entry.k,
        "model": body.model,
        "envelope": envelope,
        "body": encoded,
    }
