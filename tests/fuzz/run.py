"""Fuzz one harness with atheris, which reads Python's coverage into libFuzzer.

    python tests/fuzz/run.py NAME [options and folders of libFuzzer]

Without folders it starts from the harness's seeds and its committed corpus, and keeps what it finds under the temporary
directory, in fuzz/NAME.
"""

import hashlib
import importlib
import resource
import sys
import tempfile
from pathlib import Path

import atheris

CORPUS = Path(__file__).with_name("corpus")
WORK = Path(tempfile.gettempdir()) / "fuzz"
MEMORY = 1 << 30
"""Bytes that a harness may take beyond what it has when it starts; claimed sizes are meant to break on it."""


def main() -> None:
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["sapo_protocol", "sapo_node", "harness", f"fuzz_{name}"]):
        module = importlib.import_module(f"fuzz_{name}")
    if all(option.startswith("-") for option in options):
        work, committed = WORK / name, CORPUS / name
        work.mkdir(parents=True, exist_ok=True)
        for seed in module.seeds():
            (work / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
        options += [str(folder) for folder in (work, committed) if folder.is_dir()]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    # To merge folders, libFuzzer starts itself anew by this first word.
    again = f"{sys.executable} {sys.argv[0]} {name}"
    atheris.Setup([again, f"-artifact_prefix={WORK}/{name}-", *options], module.fuzz)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
