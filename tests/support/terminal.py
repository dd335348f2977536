"""A terminal as a person has it: a shell in tmux with 80 columns and 24 rows. A test types lines and reads the screen.

with Terminal(folder) as terminal:
    terminal.type("sapo-node start")
    terminal.see(r"round +3 ", within=120)
    terminal.press("C-c")
    assert terminal.end(within=60) == 0
"""

import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from uuid import uuid4

COLUMNS, ROWS = 80, 24
KEPT_LINES = 100_000
SETTINGS = f"set -g history-limit {KEPT_LINES}\nset -g status off\n"
PROMPT = r"PS1='\#:$?> '"
"""The number of the command, and the exit status of the one before."""
HIDDEN = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "TMUX", "PYTEST_CURRENT_TEST")
"""Variables of the test run that a person's shell does not have."""


class Terminal:
    def __init__(self, folder, *, home, activate=None, name="shell"):
        """Open a shell in `folder`, with `home` as HOME and the virtual environment `activate`, if one is given."""
        self.name = name
        self._home = Path(home)
        self._socket = f"sapo-{uuid4().hex[:8]}"
        self._began = time.monotonic()
        self._commands = 0
        settings = self._home / "tmux.conf"
        settings.write_text(SETTINGS)
        environment = {key: value for key, value in os.environ.items() if key not in HIDDEN}
        subprocess.run(
            [
                *("tmux", "-L", self._socket, "-f", str(settings)),
                *("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "bash --norc --noprofile"),
            ],
            env=environment | {"HOME": str(home)},
            cwd=folder,
            check=True,
        )
        self._type(PROMPT)
        self._wait(rf"^{self._commands + 1}:0> $", within=10)
        if activate:
            self.run(f"VIRTUAL_ENV_DISABLE_PROMPT=1 source {shlex.quote(str(activate))}/bin/activate")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._tmux("kill-server")

    def _tmux(self, *arguments):
        command = ["tmux", "-L", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def _type(self, line):
        self._commands += 1
        self.answer(line)

    def type(self, line):
        """Type a line and the Enter key."""
        print(f"{time.monotonic() - self._began:5.0f} s  {self.name} $ {line}", flush=True)
        self._type(line)

    def answer(self, line):
        """Type a line to the program that runs."""
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")

    def press(self, key):
        """Press a key by its name in tmux, such as `C-c`."""
        self._tmux("send-keys", key)

    def screen(self):
        """The rows that a person sees now."""
        return self._tmux("capture-pane", "-p")

    def text(self):
        """All that was printed since the shell began. Lines that the terminal wrapped are whole again."""
        return self._tmux("capture-pane", "-p", "-J", "-S", f"-{KEPT_LINES}")

    def output(self):
        """All that the last command printed."""
        return self.text().rpartition(f"\n{self._commands}:")[2].partition("\n")[2]

    def see(self, pattern, *, within, when=bool, printed=False):
        """Wait until the screen shows `pattern`, or with `printed` until the last command has printed it.

        Returns the last match for which `when` holds. `within` is in seconds.
        """
        return self._wait(pattern, within=within, when=when, read=self.output if printed else self.screen)

    def _wait(self, pattern, *, within, when=bool, read=None):
        deadline = time.monotonic() + within
        while True:
            shown = (read or self.text)()
            if found := [each for each in re.finditer(pattern, shown, re.MULTILINE) if when(each)]:
                return found[-1]
            assert time.monotonic() < deadline, f"{self.name}: {pattern!r} not within {within} s:\n{shown[-6_000:]}"
            time.sleep(0.5)

    def end(self, *, within):
        """Wait until the command has ended; its exit status."""
        status = int(self._wait(rf"^{self._commands + 1}:(\d+)> ", within=within)[1])
        print(f"{time.monotonic() - self._began:5.0f} s  {self.name} ended with {status}", flush=True)
        return status

    def run(self, line, *, within=60, status=0):
        """Type a command, wait for its end, require its exit status, and return what it printed."""
        self.type(line)
        assert self.end(within=within) == status, self.output()[-6_000:]
        return self.output().rpartition("\n")[0]
