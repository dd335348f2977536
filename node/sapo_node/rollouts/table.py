"""The columns of an export, in Parquet through pyarrow (extra `data`), and the names of its files."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sapo_node.processes.extras import command_for
from sapo_protocol import LocalError

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
            ("levels", arrow.list_(arrow.float32())),
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
