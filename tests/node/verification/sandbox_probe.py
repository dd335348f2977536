"""Applies layers of the sandbox to forked processes that then attack; tells which attacks got through.

`python sandbox_probe.py LAYER` writes one JSON object {attack: outcome}; an outcome is "open", "blocked" or the name of
the signal that ended the attacker; "missing" if this kernel lacks the layer.
"""

import _thread
import ctypes
import json
import mmap
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sapo_node.verification.sandbox import lockdown
from sapo_node.verification.sandbox.lockdown import ChildLimits, confine_child, confine_zygote

PID = os.getpid()
if os.getuid() == 0:
    lockdown._become_nobody()
FOLDER = Path(tempfile.mkdtemp())
READABLE = FOLDER / "readable"
READABLE.write_text("secret")
ABSTRACT_NAME = f"\0sandbox-probe-{PID}"


def listen() -> tuple[socket.socket, socket.socket]:
    tcp = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(ABSTRACT_NAME)
    unix.listen()
    return tcp, unix


TCP, UNIX = listen()
ADDRESS = TCP.getsockname()


def read_file() -> None:
    READABLE.read_text()


def write_file() -> None:
    (FOLDER / "written").write_text("")


def connect_tcp() -> None:
    socket.socket(socket.AF_INET).connect(ADDRESS)


def send_udp() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ADDRESS)


def connect_abstract_socket() -> None:
    socket.socket(socket.AF_UNIX).connect(ABSTRACT_NAME)


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def execute() -> None:
    os.execv("/bin/sh", ["sh", "-c", "exit 0"])


def signal_parent() -> None:
    os.kill(PID, 0)


def start_thread() -> None:
    _thread.start_new_thread(time.sleep, (0,))


def allocate() -> None:
    mmap.mmap(-1, 4 << 30)


def map_executable() -> None:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)


def change_mode() -> None:
    READABLE.chmod(0o600)


def make_folder() -> None:
    (FOLDER / "folder").mkdir()


def trace() -> None:
    """PTRACE_SEIZE, which unlike an attach does not stop the one who waits for us."""
    if ctypes.CDLL(None, use_errno=True).ptrace(0x4206, PID, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def raise_limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def leave_namespace() -> None:
    lockdown._leave_namespaces(0x1000_0000)


def import_late() -> None:
    import wave

    assert wave


def burn() -> None:
    end = time.process_time() + 2.5
    while time.process_time() < end:
        pass


ATTACKS: list[Callable[[], None]] = [
    read_file,
    write_file,
    connect_tcp,
    send_udp,
    connect_abstract_socket,
    fork,
    execute,
    signal_parent,
    start_thread,
    allocate,
    map_executable,
    change_mode,
    make_folder,
    raise_limit,
    leave_namespace,
    import_late,
    trace,
]


def all_layers() -> None:
    confine_zygote()
    confine_child(ChildLimits(1), os.getppid())


LAYERS: dict[str, Callable[[], object]] = {
    "none": lambda: None,
    "rlimits": lambda: lockdown.limit_resources(1),
    "landlock": lockdown._restrict_with_landlock,
    "namespaces": lambda: lockdown._leave_namespaces(0x1000_0000 | 0x4000_0000 | 0x0800_0000 | 0x0002_0000),
    "seccomp": lockdown.install_filter,
    "all": all_layers,
}


def outcome(layer: str, attack: Callable[[], None]) -> str:
    pid = os.fork()
    if pid == 0:
        try:
            LAYERS[layer]()
        except OSError:
            os._exit(2)
        try:
            attack()
        except (OSError, MemoryError, ImportError, RuntimeError, ValueError):
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return ("open", "blocked", "missing")[os.WEXITSTATUS(status)]


def main() -> None:
    layer = sys.argv[1]
    attacks = [*ATTACKS, *([burn] if layer == "rlimits" else [])]
    sys.stdout.write(json.dumps({attack.__name__: outcome(layer, attack) for attack in attacks}))
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
