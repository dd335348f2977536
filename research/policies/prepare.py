"""Finds a prepared policy in a folder, or builds it there and moves it into place by one rename.

A folder with a policy's name is therefore complete. An interrupted build lies beside it, under a name with the digest
of everything that the policy is made from, so that a changed recipe never continues the build of another.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from research.policies.catalogue import POLICIES, Making, Progress, TrainedGroup
from research.seed.recipe import Lessons
from sapo_adversary.files import read_results, suggestion, writable_folder
from sapo_adversary.simulator.runs import default_policies
from sapo_node.learner.folder import POLICY_DIR
from sapo_protocol import LocalError, Manifest, load_manifest

SWARM = "starter"


def prepare(name: str, folder: Path, progress: Progress, *, policies: Mapping[str, Making] = POLICIES) -> Path:
    """Return the model folder of a policy, `folder/name`. Build it first where it is missing or of another
    recipe.

    Its `meta.json` holds what it was made from, the command and the measurements. Raises LocalError for an unknown
    name.
    """
    require_known([name], policies)
    manifest = load_manifest(SWARM)
    made_from = _made_from(policies[name], manifest)
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
    target = folder / name
    if meta_of(target).get("digest") == digest:
        return target
    if folder == default_policies():
        folder.parent.mkdir(parents=True, exist_ok=True)
    writable_folder(folder)
    # torch takes seconds to import, and most of the time there is nothing to build.
    from research.policies.make import make  # noqa: PLC0415

    work = folder / f".{name}-{digest[:12]}"
    out = work / "policy"
    out.mkdir(parents=True, exist_ok=True)
    with _alone_in(work, name):
        measured = make(policies[name], manifest, work, out, progress)
        meta = {"command": f"python -m research.policies {name}", "digest": digest, **made_from, **measured}
        (out / "meta.json").write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")
        if target.exists():
            shutil.rmtree(target)
        out.rename(target)
        shutil.rmtree(work)
    return target


@contextmanager
def _alone_in(work: Path, name: str) -> Iterator[None]:
    """Raises LocalError where another process builds there."""
    descriptor = os.open(work, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LocalError(f"another process is building {name} in {work.parent}; wait for it") from error
    else:
        yield
    finally:
        os.close(descriptor)


def prepare_all(names: Iterable[str], folder: Path, console: Console) -> None:
    """Build those of the policies that are missing, with a bar for each. Raises LocalError for a name that is none."""
    names = tuple(names)
    require_known(names)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[doing]}"),
    )
    with Bars(*columns, console=console) as shown:
        for name in names:
            bar = shown.add_task(name, total=1.0, doing="")

            def advance(share: float, doing: str, bar: TaskID = bar) -> None:
                shown.update(bar, completed=share, doing=doing)

            prepare(name, folder, advance)
            advance(1.0, "there")


def require_known(names: Iterable[str], policies: Mapping[str, Making] = POLICIES) -> None:
    """Raise LocalError for an unknown name."""
    for name in names:
        if name not in policies:
            raise LocalError(f"no policy {name!r}; {suggestion(name, policies)}")


def meta_of(target: Path) -> dict[str, Any]:
    """The `meta.json` of a prepared policy; empty where there is none. Raises LocalError where it is damaged."""
    path = target / "meta.json"
    return read_results(path, "`python -m research.policies`") if path.exists() else {}


def _made_from(making: Making, manifest: Manifest) -> dict[str, Any]:
    """Everything that the policy's bytes depend on, but for the code."""
    values = asdict(making)
    del values["about"]
    configs = {spec.dataset: dict(spec.config) for spec in manifest.tasks}
    made_from = {"kind": type(making).__name__.lower(), **values, "tasks": configs, "packaged": _packaged_digest()}
    if isinstance(making, TrainedGroup):
        made_from["lessons"] = Lessons(making.recipe, configs).digest()
    return made_from


def _packaged_digest() -> str:
    """SHA-256 over the weights and the tokenizer in the package, in hexadecimal."""
    total = hashlib.sha256()
    for name in ("model.safetensors", "tokenizer.json"):
        total.update((POLICY_DIR / name).read_bytes())
    return total.hexdigest()
