"""One node of a soak in its own process, with its log."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import trio

from research.router_lab import Host
from sapo_node.app.state import StateFolder, reading
from sapo_node.groups.record import GroupKey
from sapo_node.storage.database import StateError
from sapo_node.training.take_back import TAKEN_BACK
from sapo_node.trust.constants import PeerState
from sapo_node.trust.ledger import account_from

LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class Member:
    """A node that is started again whenever it ends."""

    name: str
    folder: Path
    swarm: Path
    stays: bool
    """Whether it has no faults."""
    host: Host | None = None
    """The machine of the laboratory on which it runs; without one it runs on loopback."""
    bootstrap: tuple[str, ...] = ()
    port: int = 0
    process: trio.Process | None = None
    starts: int = 0
    address: str = ""
    step: int = 0
    """The last round that it played."""
    played_in: int = 0
    """The start after which it played that round."""
    again: int = 0
    """The number of rounds that it played a second time."""
    counts: dict[str, int] = field(default_factory=dict)
    banned: set[str] = field(default_factory=set)
    """The peers that it has banned. Bans end, and its lines name only the first hundred peers."""
    taken_back: set[GroupKey] = field(default_factory=set)
    """The external groups that it trained on and took back. Its lines do not name them."""
    notices: list[str] = field(default_factory=list)
    stopped: bool = False
    """Whether its last life ended in order."""
    news: trio.Event = field(default_factory=trio.Event)
    """Set at its next line."""

    def __post_init__(self) -> None:
        self.folder.mkdir()
        with socket.socket() as free:
            free.bind((LOOPBACK, 0))
            self.port = free.getsockname()[1]

    @property
    def log(self) -> Path:
        """The standard error of the node, over all its lives."""
        return self.folder / "stderr"

    def command(self) -> list[str]:
        """The command that starts the node."""
        command = [
            *(sys.executable, "-P", "-m", "sapo_node", "start", "--json", "--dashboard", "off"),
            *("--swarm", str(self.swarm), "--key", str(self.folder / "node.key"), "--state", str(self.folder)),
            *("--listen", f"/ip4/{'0.0.0.0' if self.host else LOOPBACK}/tcp/{self.port}"),  # noqa: S104 - in a laboratory
            *("--network", "auto" if self.host else "manual"),
        ]
        for address in self.bootstrap:
            command += ["--bootstrap", address]
        return self.here(*command)

    def here(self, *command: str) -> list[str]:
        """The command that runs a program on the machine of this node."""
        return self.host.command(command) if self.host else list(command)

    async def live(self) -> None:
        """Run the node once, until its process ends."""
        self.starts += 1
        self.stopped = False
        with self.log.open("ab") as log:
            self.process = await trio.lowlevel.open_process(self.command(), stdout=subprocess.PIPE, stderr=log)
        stdout = self.process.stdout
        assert stdout is not None
        rest = b""
        async for chunk in stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        await self.process.wait()

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "started":
                at = self.host.address if self.host else LOOPBACK
                self.address = next(each for each in event["addresses"] if each.startswith(f"/ip4/{at}/"))
            case "round":
                self.again += event["step"] <= self.step
                self.step, self.played_in = event["step"], self.starts
            case "notice":
                self.notices.append(event["text"])
            case "stopped":
                self.stopped = True
        if "counts" in event:
            self.counts = event["counts"]
        self.news.set()
        self.news = trio.Event()

    @property
    def peer(self) -> str:
        """Its peer id; empty before its first start."""
        return self.address.rpartition("/p2p/")[2]

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    def processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """Its processes by purpose: main, learner, sandbox."""
        if self.process is None or not self.running:
            return
        with suppress(psutil.Error):
            main = psutil.Process(self.process.pid)
            yield "main", main
            for child in main.children():
                words = " ".join(child.cmdline())
                yield ("learner" if "sapo_node.learner" in words else "sandbox"), child

    def sample(self) -> list[dict[str, Any]]:
        """Memory in bytes, open files and threads of each of its processes, and the bytes of its state on disk."""
        found = []
        for role, process in self.processes():
            with suppress(psutil.Error):
                found.append(
                    {
                        "at": time.time(),
                        "node": self.name,
                        "life": self.starts,
                        "role": role,
                        "rss": process.memory_info().rss,
                        "files": process.num_fds(),
                        "threads": process.num_threads(),
                        "disk": self._disk(),
                    }
                )
        return found

    def look(self) -> None:
        """Take note of the peers that its ledger bans now, and of the groups that its book says it took back."""
        for file in self.folder.glob("*/*/node.sqlite"):
            with suppress(StateError), reading(StateFolder(file.parent)) as database:
                accounts = map(account_from, database.rows("SELECT * FROM ledger"))
                self.banned.update(each.peer for each in accounts if each.state is PeerState.BANNED)
                taken_back = "SELECT peer, epoch, counter, k FROM groups WHERE why LIKE ? || '%'"
                self.taken_back.update(database.rows(taken_back, TAKEN_BACK))

    def _disk(self) -> int:
        total = 0
        for file in self.folder.rglob("*"):
            with suppress(OSError):  # it may be gone by now
                total += file.stat().st_size
        return total
