"""Publishers of the load test, driven line by line."""

import json
import subprocess
import sys
import threading
import time
from queue import Queue

from processes import ENVIRONMENT
from sapo_adversary.load.keys import identity_of


def trusting(folder, words, users):
    """The configuration of a node that trusts so many of them, as arguments of `start`."""
    folder.mkdir()
    known = [identity_of(words, user).peer_id for user in range(users)]
    (folder / "load.toml").write_text(f"trusted = {json.dumps(known)}\n")
    return ("--config", folder / "load.toml", "--dashboard", "off")


class Publishers:
    """The load's own publishers in their process; what they say is in `said`."""

    def __init__(self, target, swarm, words, users, *, within=()):
        """`words` are what the keys of so many users follow from; `within` goes before the command."""
        command = [*within, sys.executable, "-m", "sapo_adversary.load.publishers", target, str(swarm), words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, **pipes, text=True, env=ENVIRONMENT)
        self.said = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.said.get(timeout=60) == {"ready": True}
        for user in range(users):
            self.tell({"join": user})
            assert self.said.get(timeout=60) == {"joined": user, "welcome": True}
        time.sleep(3)  # until the listener is in the target's mesh

    def _read(self):
        for line in self.process.stdout:
            self.said.put(json.loads(line))

    def tell(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()

    def close(self):
        self.process.kill()
        self.process.wait()
