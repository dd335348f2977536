"""The targets of curves, and how each takes a point. Only the child process of a target imports its library."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TextIO

from sapo_node.observability.curves.names import COLUMNS
from sapo_node.observability.curves.request import Run

TABLE = "completions"
_STRING = 7
"""DT_STRING of TensorBoard's tensors."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one round, or one evaluation, adds to the curves."""

    step: int
    at: float
    """Unix time."""
    values: dict[str, float]
    completions: tuple[tuple[Any, ...], ...] = ()
    """Rows of the table `completions`, with the columns COLUMNS; empty if this point has no table."""


class Writer(Protocol):
    """Takes points in order."""

    def write(self, point: Point) -> None:
        """Write a point."""
        ...

    def close(self) -> None:
        """Write what is still in memory, and end."""
        ...


class JsonLines:
    """curves.jsonl, a line per point; completions.jsonl, a line per completion. Later starts append to both."""

    def __init__(self, run: Run) -> None:
        folder = Path(run.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._curves = (folder / "curves.jsonl").open("a", encoding="utf-8")
        self._completions = (folder / f"{TABLE}.jsonl").open("a", encoding="utf-8")

    def write(self, point: Point) -> None:
        """Write a point."""
        _line(self._curves, {"step": point.step, "at": point.at, **point.values})
        for row in point.completions:
            _line(self._completions, dict(zip(COLUMNS, row, strict=True)))

    def close(self) -> None:
        """Close the files."""
        self._curves.close()
        self._completions.close()


def _line(file: TextIO, value: Mapping[str, Any]) -> None:
    file.write(json.dumps(value) + "\n")
    file.flush()


class TensorBoard:
    """Event files. `tensorboard --logdir FOLDER` shows them; the table is text."""

    def __init__(self, run: Run) -> None:
        self._proto = {name: import_module(f"tensorboard.compat.proto.{name}_pb2") for name in ("event", "summary")}
        self._tensor = import_module("tensorboard.compat.proto.tensor_pb2")
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        self._file = writer.EventFileWriter(str(Path(run.folder) / "tensorboard"))

    def write(self, point: Point) -> None:
        """Write a point."""
        summary = self._proto["summary"].Summary()
        for name, value in point.values.items():
            summary.value.add(tag=name, simple_value=value)
        if point.completions:
            self._add_text(summary, _markdown(point.completions))
        self._file.add_event(self._proto["event"].Event(wall_time=point.at, step=point.step, summary=summary))
        self._file.flush()

    def _add_text(self, summary: Any, text: str) -> None:
        value = summary.value.add(tag=TABLE)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.CopyFrom(self._tensor.TensorProto(dtype=_STRING, string_val=[text.encode()]))
        value.tensor.tensor_shape.dim.add(size=1)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _markdown(rows: tuple[tuple[Any, ...], ...]) -> str:
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (COLUMNS, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|---" * len(COLUMNS) + "|", *lines[1:]])


class Trackio:
    """A project of Trackio, on this machine. `trackio show` shows it. A restart continues the run."""

    def __init__(self, run: Run) -> None:
        self._library = import_module("trackio")
        self._library.init(project=run.project, name=run.name, resume="allow")

    def write(self, point: Point) -> None:
        """Write a point."""
        self._library.log(_with_table(self._library, point), step=point.step)

    def close(self) -> None:
        """End the run."""
        self._library.finish()


class WeightsAndBiases:
    """A run of Weights & Biases. The variables of that library, as WANDB_MODE, hold. A restart continues the run."""

    def __init__(self, run: Run) -> None:
        Path(run.folder).mkdir(parents=True, exist_ok=True)
        self._library = import_module("wandb")
        self._run = self._library.init(
            project=run.project, name=run.name, id=run.name, dir=run.folder, resume="allow", save_code=False
        )

    def write(self, point: Point) -> None:
        """Write a point."""
        self._run.log(_with_table(self._library, point), step=point.step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


def _with_table(library: Any, point: Point) -> dict[str, Any]:
    if not point.completions:
        return dict(point.values)
    table = library.Table(columns=list(COLUMNS), data=[list(row) for row in point.completions])
    return {**point.values, TABLE: table}


TARGETS: Mapping[str, Callable[[Run], Writer]] = {
    "jsonl": JsonLines,
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WeightsAndBiases,
}
"""How to open each target of LIBRARIES."""
