"""A person with a clone of the last commit, a home of their own, and an afternoon."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from terminal import Terminal

ROOT = Path(__file__).parents[2]
INSTALL_SECONDS = 900


class Person:
    """Opens terminals. What each terminal printed is in `build/walk/` afterwards."""

    def __init__(self, folder):
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.clone = folder / "sapo-node"
        subprocess.run(["git", "clone", "--quiet", ROOT, self.clone], check=True)
        self._transcripts = ROOT / "build/walk"
        self._transcripts.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def terminal(self, name, folder=None, *, activated=True):
        """A terminal in a folder, with the virtual environment of the clone."""
        folder = self.clone if folder is None else folder
        folder.mkdir(parents=True, exist_ok=True)
        environment = self.clone / ".venv" if activated else None
        with Terminal(folder, home=self.home, activate=environment, name=name) as terminal:
            try:
                yield terminal
            finally:
                (self._transcripts / f"{name}.txt").write_text(terminal.text())


@pytest.fixture(scope="session")
def newcomer(tmp_path_factory):
    """A person that has cloned the repository, and has installed nothing yet."""
    return Person(tmp_path_factory.mktemp("walk"))


@pytest.fixture(scope="session")
def person(newcomer):
    """The same, after `make install`."""
    with newcomer.terminal("install", activated=False) as terminal:
        terminal.run("make install", within=INSTALL_SECONDS)
    return newcomer
