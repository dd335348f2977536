"""Subnets on one machine, in network namespaces, with air between them that is late, lossy, or not there at all.

What `tc netem` does where the kernel has it; this needs only root and TUN devices. Each place is a namespace with one
address and one way out, a device whose packets this process carries to the other places.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

_TUN = Path("/dev/net/tun")
_SET_INTERFACE, _PLAIN_IP = 0x400454CA, 0x0001 | 0x1000  # TUNSETIFF; IFF_TUN | IFF_NO_PI
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_TCP, _SYN, _ACK = 6, 0x02, 0x10
_MTU = 1_400


def missing() -> str:
    """What this machine lacks for it; empty if nothing."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if not _TUN.exists():
        return f"there is no {_TUN}"
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, check=False)
    return "there is no `ip netns`" if done.returncode else ""


class Place:
    """One subnet with one address. Nobody opens a connection into a `hidden` one, as behind NAT without forwarding."""

    def __init__(self, name: str, number: int, *, hidden: bool) -> None:
        self.name = f"sapo-{os.getpid()}-{name}"
        self.address = f"10.77.{number}.1"
        self.hidden = hidden
        _ip("netns", "add", self.name)
        self.device = _device_in(self.name)
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "air")
        _ip("-n", self.name, "link", "set", "air", "mtu", str(_MTU), "up")
        _ip("-n", self.name, "route", "add", "default", "dev", "air")

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes before a command that is to run here."""
        return ("ip", "netns", "exec", self.name)

    def close(self) -> None:
        os.close(self.device)
        _ip("netns", "del", self.name)


class Air:
    """Carries packets between places until it is closed."""

    def __init__(self, *, delay: float, loss: float, seed: int = 0) -> None:
        """`delay` in seconds one way, give or take a tenth; `loss` is a probability for each packet."""
        self._delay, self._loss = delay, loss
        self._rng = random.Random(seed)
        self._places: dict[str, Place] = {}
        self._open: set[bytes] = set()
        """Connections that began within a hidden place: its address and port, and those of the other end."""
        self._side: dict[str, int] = {}
        self._waiting: list[tuple[float, int, Place, bytes]] = []
        self.carried = self.lost = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        for place in self._places.values():
            place.close()

    def place(self, name: str, *, hidden: bool = False) -> Place:
        place = Place(name, len(self._places) + 1, hidden=hidden)
        self._places[place.address] = place
        return place

    def part(self, *sides: Collection[Place]) -> None:
        """Nothing passes between the sides any more."""
        self._side = {place.address: number for number, side in enumerate(sides) for place in side}

    def heal(self) -> None:
        self._side = {}

    def _carry(self) -> None:
        sequence = 0
        while not self._closed.is_set():
            places = list(self._places.values())
            due = self._waiting[0][0] - time.monotonic() if self._waiting else 0.05
            ready, _, _ = select.select([place.device for place in places], [], [], min(0.05, max(0.0, due)))
            for place in places:
                if place.device in ready:
                    packet = os.read(place.device, 65_536)
                    if target := self._takes(packet):
                        sequence += 1
                        late = self._delay * self._rng.uniform(0.9, 1.1)
                        heapq.heappush(self._waiting, (time.monotonic() + late, sequence, target, packet))
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(self._waiting)
                os.write(target.device, packet)
                self.carried += 1

    def _takes(self, packet: bytes) -> Place | None:
        """Where a packet goes; None where it is lost."""
        if packet[0] >> 4 != 4:
            return None
        source, destination = (".".join(map(str, packet[start : start + 4])) for start in (12, 16))
        here, target = self._places.get(source), self._places.get(destination)
        if here is None or target is None or self._side.get(source) != self._side.get(destination):
            return None
        if not self._may_pass(packet, here, target) or self._rng.random() < self._loss:
            self.lost += 1
            return None
        return target

    def _may_pass(self, packet: bytes, here: Place, target: Place) -> bool:
        if packet[9] != _TCP:
            return not target.hidden
        head = (packet[0] & 0x0F) * 4
        ours, theirs = packet[12:16] + packet[head : head + 2], packet[16:20] + packet[head + 2 : head + 4]
        flags = packet[head + 13]
        if here.hidden and flags & _SYN and not flags & _ACK:
            self._open.add(ours + theirs)
        return not target.hidden or theirs + ours in self._open


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _device_in(namespace: str) -> int:
    """A TUN device of that namespace, as a descriptor of this process."""

    def make() -> int:
        with Path(f"/var/run/netns/{namespace}").open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        device = os.open(_TUN, os.O_RDWR)
        fcntl.ioctl(device, _SET_INTERFACE, struct.pack("16sH22x", b"air", _PLAIN_IP))
        return device

    # In a thread of its own: which namespace that one is in concerns nobody else.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()
