"""Real `sapo-node` processes for tests: started, followed by their JSON lines, killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from queue import Empty, Queue

from sapo_protocol import load_manifest, render_manifest

PATIENCE = 120.0
"""Seconds within which an awaited event must come on a busy machine."""

SOURCES = [str(Path(__file__).parents[2] / package) for package in ("protocol", "node", "adversary")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES), "COLUMNS": "120"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "USE_HUB_KERNELS": "NO", "OMP_NUM_THREADS": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
PYTHON = sys.executable
ENTRIES = {"sapo-node": "sapo_node.cli.entry:main", "sapo-adversary": "sapo_adversary.cli.entry:main"}


class ForkServers:
    """Two fork servers, which import at the first request, and an interpreter that asks them.

    Some modules read the environment when they are imported. So all forked processes have the same default folders, in
    `home`.
    """

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="forks-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.home = folder / "home"
        self.home.mkdir()
        places = {"XDG_STATE_HOME": str(self.home / "state"), "XDG_CACHE_HOME": str(folder), "HF_HOME": str(folder)}
        self.environment = ENVIRONMENT | OFFLINE | places
        self.commands = folder / "commands"
        self.python = folder / "python"
        text = Path(__file__).with_name("forked_python.py").read_text()
        self.python.write_text(f"#!{PYTHON} -IS\n{text}")
        self.python.chmod(0o700)
        self._servers = [self._start(folder / kind) for kind in ("commands", "learner")]

    def _start(self, path):
        command = [PYTHON, Path(__file__).with_name("fork_server.py"), path.name]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(path))
            listener.listen(64)
            return subprocess.Popen(command, stdin=listener, env=self.environment)

    def end(self):
        for server in self._servers:
            server.kill()
            server.wait()
        self._folder.cleanup()


@cache
def fork_servers():
    """The fork servers of this test run. They end with it: `conftest.py` ends them and waits for them."""
    return ForkServers()


class ForkedProcess:
    """One process of the fork server of the commands, with the methods of `subprocess.Popen` that tests need."""

    def __init__(self, name, arguments, files, *, cwd=None, umask=-1, memory=0):
        """`files` are the descriptors of stdin, stdout and stderr; `memory` bounds its address space in bytes."""
        servers = fork_servers()
        request = {
            "program": ENTRIES[name],
            "name": name,
            "arguments": list(map(str, arguments)),
            "env": servers.environment,
            "cwd": str(cwd or Path.cwd()),
            "umask": umask,
            "memory": memory,
            "ignores_interrupt": False,
            "python": str(servers.python),
        }
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(str(servers.commands))
        socket.send_fds(self._connection, [json.dumps(request).encode()], files)
        self.pid = int(self._connection.recv(64))
        self.returncode = None

    def poll(self):
        """The exit code; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout=None):
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = int(self._connection.recv(64))
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("a forked process", timeout) from None
            self._connection.close()
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def run(name, *arguments, timeout=PATIENCE, stdin=None, input="", encoding="utf-8", errors="strict", **options):  # noqa: A002
    """Run a command to its end, as `subprocess.run` does. What is late is killed. `options` are of ForkedProcess."""
    with tempfile.TemporaryFile() as typed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        typed.write(input.encode(encoding, errors))
        typed.seek(0)
        files = [typed.fileno() if stdin is None else stdin, out.fileno(), err.fileno()]
        process = ForkedProcess(name, arguments, files, **options)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        said = [os.pread(file.fileno(), 1_000_000, 0).decode(encoding, errors) for file in (out, err)]
    return subprocess.CompletedProcess([name, *arguments], code, *said)


sapo_node = partial(run, "sapo-node")


def write_swarm(path, *, shards=1, inline_bytes=1_000, **changes):
    """A swarm of this test alone, which has just begun."""
    settings = {"name": path.stem, "genesis": int(time.time()), "epoch_seconds": 600, "max_rounds": 10_000} | changes
    swarm = replace(load_manifest("starter").restarted(**settings), shards=shards, inline_bytes=inline_bytes)
    path.write_text(render_manifest(swarm))
    return path


class RunningProcess:
    """One `sapo-node start --json`, or another command that runs a node, and what it has said so far."""

    def __init__(self, folder, *arguments, command="start", within=(), address="127.0.0.1", stdin=None, **options):
        """`within` goes before the command; `address` is where it listens; `options` are those of the process."""
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.events = []
        self._queue = Queue()
        self._stderr = (self.folder / "stderr").open("a")
        listen = ("--listen", f"/ip4/{address}/tcp/0")
        where = ("--key", self.folder / "node.key", "--state", self.folder / "state", *listen)
        arguments = list(map(str, (command, "--json", "--network", "manual", *where, *arguments)))
        self._read_end, output = os.pipe()
        try:
            if within:
                files = {"stdin": stdin, "stdout": output, "stderr": self._stderr}
                argv = [*within, sys.executable, "-m", "sapo_node", *arguments]
                self.process = subprocess.Popen(argv, env=ENVIRONMENT, **files, **options)
            else:
                with Path(os.devnull).open() as nothing:
                    files = [nothing.fileno() if stdin is None else stdin, output, self._stderr.fileno()]
                    self.process = ForkedProcess("sapo-node", arguments, files, **options)
        finally:
            os.close(output)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._stderr.close()

    def _read(self):
        with os.fdopen(self._read_end) as output:
            for line in output:
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
