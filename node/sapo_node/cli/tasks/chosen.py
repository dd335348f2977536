"""Finds the task that a command line names: a dataset, or a module in a file that no package defines yet."""

import difflib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sapo_node.app.config import load_config
from sapo_node.groups.prompt import task_name
from sapo_node.storage.row_files import RowFile, open_rows
from sapo_node.tasks import Task, build_task, catalogue, plugins
from sapo_protocol import LocalError, TaskSpec, load_manifest
from sapo_protocol.toml import parse_toml

_OWN = "own"
"""The name before the dot of a dataset whose module is a file."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The task that a command line names."""

    dataset: str
    config: Mapping[str, Any]
    levels: int
    """L, the level of a correct completion."""
    path: tuple[str, ...] = ()
    """Folders that another process adds to its `sys.path` to find the dataset."""
    rows: RowFile | None = None
    """The file that has the items; None for a dataset."""

    def build(self, seed: int) -> Task:
        """Return the item of a seed. Raises TaskError if there is none."""
        return self.rows.task(seed) if self.rows else build_task(self.dataset, self.config, seed)


@contextmanager
def chosen(named: str, config: str | None, swarm: str | None, levels: int | None) -> Iterator[Chosen]:
    """Yield the task. `named` is a dataset, the name of a task of `swarm`, or the path of a Python file.

    Until the block ends, the module in a Python file is a dataset of this process. Raises LocalError if there is no
    such task.
    """
    if named.endswith(".py"):
        if swarm is not None:
            raise LocalError(f"no manifest can name the file {named}: leave out --swarm, and give --config")
        with _installed(Path(named)) as (dataset, path):
            yield Chosen(dataset, parse_config(config), levels or 1, path)
    elif swarm is not None:
        spec = _of_swarm(named, swarm)
        rows = open_rows([spec], load_config(None).files_of([spec])).get(spec.dataset)
        changed = spec.config if config is None else parse_config(config)
        yield Chosen(spec.dataset, changed, levels or spec.levels, rows=rows)
    else:
        _require_known(named)
        yield Chosen(named, parse_config(config), levels or 1)


def parse_config(text: str | None) -> dict[str, Any]:
    """Return the configuration that a text of JSON or TOML holds: `{"max": 9}`, `{ max = 9 }` or `max = 9`.

    Raises LocalError for another text.
    """
    text = (text or "").strip() or "{}"
    try:
        found: object = json.loads(text)
    except ValueError:
        inner = text if text.startswith("{") else f"{{ {text} }}"
        try:
            found = parse_toml(f"config = {inner}", "--config")["config"]
        except LocalError as error:
            raise LocalError(f"{error}; write --config 'max = 9, styles = [\"plain\"]', or JSON") from error
    if not isinstance(found, dict):
        raise LocalError(f"--config is {text}; write --config 'max = 9', or JSON with a name for each value")
    return found


def _of_swarm(named: str, swarm: str) -> TaskSpec:
    manifest = load_manifest(swarm)
    names = {task_name(manifest, spec.dataset, spec.config): spec for spec in manifest.tasks}
    if named not in names:
        several = [each for each in names if names[each].dataset == named]
        known = ", ".join(map(repr, several or names))
        raise LocalError(f"swarm {manifest.name!r} has no task {named!r}; give one of {known}")
    return names[named]


def _require_known(dataset: str) -> None:
    known = [entry.dataset for entry in catalogue()]
    if dataset not in known:
        close = difflib.get_close_matches(dataset, known, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`sapo-node task list` shows all."
        raise LocalError(
            f"there is no dataset {dataset!r} here; {hint} For a module of your own give the path of its file, as in "
            f"./{dataset.rpartition('.')[2]}.py"
        )


@contextmanager
def _installed(file: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Let a package define the dataset of this module until the block ends; this and new processes find it.

    The folder of the file comes last in `sys.path`, so that no file beside it takes the place of another module.
    """
    if not file.is_file():
        raise LocalError(f"there is no file {file}; give the path of a Python file, or a name of `sapo-node task list`")
    name, before = file.stem, list(sys.path)
    with TemporaryDirectory() as folder:
        info = Path(folder, f"{_OWN}-0.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_OWN}\nVersion: 0\n", "utf-8")
        (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{_OWN}.{name} = {name}\n", "utf-8")
        path = (folder, str(file.parent.resolve()))
        sys.path += path
        plugins.forget()
        try:
            _require_module(name, file)
            yield f"{_OWN}.{name}", path
        finally:
            sys.path[:] = before
            sys.modules.pop(name, None)
            plugins.forget()


def _require_module(name: str, file: Path) -> None:
    if not name.isidentifier():
        raise LocalError(f"{file} cannot be imported: name it by letters, digits and _, as in my_task.py")
    found = find_spec(name)
    if found is None or found.origin is None or not Path(found.origin).samefile(file):
        raise LocalError(f"{file} has the name of another module, {name}: rename the file")
