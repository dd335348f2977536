"""What happens when somebody gives a command what it cannot use: one line that says what is wrong, and nothing is lost.

Each command runs in a folder of such things (`bad_files.py`); what it must say is in `bad_node_input.py` and
`bad_adversary_input.py`.
"""

import re
import shlex
import shutil
import socket
import stat
import unicodedata
from functools import partial

import pytest

import bad_adversary_input
import bad_node_input
from bad_files import write_bad_files
from processes import fork_servers, run
from sapo_node.app.state import StateFolder, locked

LIMIT = 90.0
"""Seconds, on a busy machine, in which a command must have ended."""
MEMORY = 8 * 2**30
"""Bytes of address space of a command: one that reads /dev/zero to its end fails, and the machine goes on."""


def cases(program, table):
    """Each line of a table: program, command, exit code, words."""
    lines = [line for line in table.strip().splitlines() if line and not line.startswith("#")]
    for line in lines:
        command, code, words = (part.strip() for part in line.split(" | ", 2))
        yield pytest.param(program, command, int(code), words.split(" & "), id=f"{program}-{command}")


ERRORS = [*cases("sapo-node", bad_node_input.ERRORS), *cases("sapo-adversary", bad_adversary_input.ERRORS)]
REPORTS = [*cases("sapo-node", bad_node_input.REPORTS)]


class Tour:
    """A folder of bad files beside those of a node that has run."""

    def __init__(self, folder, command, names):
        """`command` runs a command in that folder."""
        self._folder = folder
        self._command = command
        self._names = names
        self._before = self._files()

    def filled(self, text):
        """A text of the tables with the names of this tour in it."""
        for name, value in self._names.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def run(self, program, command):
        """Run a command beside a folder `new` with an empty one in it, and hold it to what all of them must keep."""
        shutil.rmtree(self._folder / "new", ignore_errors=True)
        (self._folder / "new" / "own").mkdir(parents=True)
        done = self._command(program, *shlex.split(self.filled(command)), memory=MEMORY)
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said
        assert not [letter for letter in said if turns_or_hides(letter)], ascii(said)
        before, after = self._before, self._files()
        self._before = {path: status for path, status in after.items() if not path.startswith("new/")}
        assert {path: after.get(path) for path in before} == before, "files that were there are as they were"
        assert not [path for path in after.keys() - before.keys() if not path.startswith("new/own/")], "nothing is left"
        return done

    def _files(self):
        """Kind, size and last change of all but folders, and the locks and logs that any use of a state makes."""
        found = {}
        for path in self._folder.rglob("*"):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) and not path.name.endswith(("lock", "pid", "-wal", "-shm")):
                found[str(path.relative_to(self._folder))] = (status.st_mode, status.st_size, status.st_mtime_ns)
        return found


def turns_or_hides(letter):
    """Whether a terminal does something else with a character than show it, or go to the next line."""
    return unicodedata.category(letter) in {"Cc", "Cf", "Cs"} and letter != "\n"


def says(text, words):
    """Whether all of the words are found."""
    return all(re.search(word, text, re.IGNORECASE | re.DOTALL) for word in words)


@pytest.fixture(scope="module")
def tour():
    """A node that ran two rounds with the key `node.key`, and on whose state another one seems to run."""
    folder = fork_servers().home
    command_there = partial(run, timeout=LIMIT, cwd=folder, errors="surrogateescape")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for command in ("start --rounds 2 --network manual --dashboard off", "state backup backup.tar"):
            done = command_there("sapo-node", *command.split())
            assert done.returncode == 0, done
        state = folder / "state" / "sapo-node"
        (database,) = state.rglob("node.sqlite")
        names = {
            **write_bad_files(folder, state, database.relative_to(state)),
            "busy": str(taken.getsockname()[1]),
            **bad_node_input.NAMES,
        }
        with locked(StateFolder(database.parent)):
            yield Tour(folder, command_there, names)


@pytest.mark.parametrize(("program", "command", "code", "words"), ERRORS)
def test_a_command_that_cannot_be_done_says_why_and_what_to_do(tour, program, command, code, words):
    done = tour.run(program, command)
    assert done.returncode == code, done
    *others, last = done.stderr.strip().splitlines()
    assert last.startswith("error: " if code == 1 else ("error: ", "Error: ")), done.stderr
    assert not [line for line in others if "error:" in line.lower()], done.stderr
    assert says(last, words := [tour.filled(word) for word in words]), f"{last!r} must say {words}"


@pytest.mark.parametrize(("program", "command", "code", "words"), REPORTS)
def test_a_command_that_finds_what_it_looks_at_bad_says_so(tour, program, command, code, words):
    done = tour.run(program, command)
    assert done.returncode == code, done
    assert says(done.stdout, words := [tour.filled(word) for word in words]), f"{done.stdout!r} must say {words}"
