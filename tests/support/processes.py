"""Real `sapo-node` processes for tests: started, followed by their JSON lines, killed."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue

from sapo_protocol import load_manifest, render_manifest

PATIENCE = 120.0
"""Seconds within which an awaited event must come on a busy machine."""

SOURCES = [str(Path(__file__).parents[2] / package) for package in ("protocol", "node", "adversary")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES), "COLUMNS": "120"}


def sapo_node(*arguments, timeout=PATIENCE, **options):
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "sapo_node", *map(str, arguments)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )


def write_swarm(path, *, shards=1, **changes):
    """A swarm of this test alone, which has just begun."""
    settings = {"name": path.stem, "genesis": int(time.time()), "epoch_seconds": 600, "max_rounds": 10_000} | changes
    path.write_text(render_manifest(replace(load_manifest("starter").restarted(**settings), shards=shards)))
    return path


class RunningProcess:
    """One `sapo-node start --json`, or another command that runs a node, and what it has said so far."""

    def __init__(self, folder, *arguments, command="start", within=(), address="127.0.0.1", **options):
        """`within` goes before the command; `address` is where it listens; `options` are those of `Popen`."""
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.events = []
        self._queue = Queue()
        self._stderr = (self.folder / "stderr").open("a")
        self.process = subprocess.Popen(
            [
                *within,
                *(sys.executable, "-m", "sapo_node", command, "--json", "--no-mdns"),
                *("--key", str(self.folder / "node.key"), "--state", str(self.folder / "state")),
                *("--listen", f"/ip4/{address}/tcp/0"),
                *map(str, arguments),
            ],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            **options,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._stderr.close()

    def _read(self):
        for line in self.process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def until(self, condition):
        """The first event, from now on, for which `condition` holds."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                event = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise AssertionError(f"not within {PATIENCE} s; the last events: {self.events[-3:]}") from None
            if event is None:
                raise AssertionError(f"the node ended: {self.errors()}; the last events: {self.events[-3:]}")
            self.events.append(event)
            if condition(event):
                return event

    def until_event(self, name):
        return self.until(lambda event: event["event"] == name)

    def until_round(self, count):
        """Wait until so many more rounds are over; the last one."""
        for _ in range(count):
            event = self.until_event("round")
        return event

    def errors(self):
        return (self.folder / "stderr").read_text()[-2_000:]

    def children(self):
        """Process ids of the learner and the sandbox, by what they run."""
        found = {}
        for pid in Path("/proc").iterdir():
            if not pid.name.isdigit():
                continue
            try:
                parent = (pid / "stat").read_text().rpartition(")")[2].split()[1]
                command = (pid / "cmdline").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == str(self.process.pid):
                found["learner" if "sapo_node.learner" in command else "sandbox"] = int(pid.name)
        return found
