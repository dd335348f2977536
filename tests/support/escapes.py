"""What an attacker who runs code in a child of the sandbox would try, as evil_plugin.py runs it there.

DENIED must fail with the outcome beside it. ENDED end the child, and its batch must fail for the cause beside it. What
CONFINED do works, for this child only: the next child must know nothing of it.
"""

import _thread
import builtins
import ctypes
import errno
import gc
import json
import mmap
import os
import platform
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import sapo_node.verification.sandbox.zygote
from escape_calls import CALLS
from sapo_node.tasks import DATASETS, Task, plugins

Attempt = Callable[[], object]

LIBC = ctypes.CDLL(None, use_errno=True)
COLUMN = 0 if platform.machine() == "x86_64" else 1
X32 = 0x4000_0000
"""Bit in the number of a call that names another calling convention of x86_64."""


def outcome(name: str) -> str:
    """What comes of an attempt, for an `item` to return as its question."""
    attempt = {**{name: attempt for name, (attempt, _) in (DENIED | ENDED).items()}, **CONFINED}[name]
    if name in ENDED:
        return str(attempt())
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    except (MemoryError, RuntimeError, ImportError, ValueError) as error:
        return type(error).__name__
    return "open"


def call(number: int, *arguments: int) -> None:
    """A system call, with zeros for what is not given: the sandbox's filter decides before it looks at arguments."""
    padded = [ctypes.c_long(value) for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    if LIBC.syscall(ctypes.c_long(number), *padded) == -1:
        raise OSError(ctypes.get_errno(), "denied")


def by_number(number: int) -> tuple[Attempt, str]:
    return lambda: call(number), "EPERM"


def fork_by(number: int, *arguments: int) -> tuple[Attempt, str]:
    def attempt() -> None:
        pid = LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
        if pid == 0:
            os._exit(0)
        if pid == -1:
            raise OSError(ctypes.get_errno(), "denied")

    return attempt, "EPERM"


def open_socket(family: int, kind: int = socket.SOCK_STREAM) -> tuple[Attempt, str]:
    return lambda: socket.socket(family, kind), "EPERM"


def read(path: str) -> tuple[Attempt, str]:
    return lambda: Path(path).read_bytes(), "EPERM"


def write(path: str) -> tuple[Attempt, str]:
    return lambda: Path(path).write_bytes(b"escaped"), "EPERM"


def map_executable() -> None:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)


def make_memory_executable() -> None:
    page = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(4096), mmap.PROT_READ | mmap.PROT_EXEC) == -1:
        raise OSError(ctypes.get_errno(), "denied")


def fill_memory() -> None:
    kept = []
    while True:
        kept.append(bytes(16 << 20))  # not touched, so that it takes no processor time


def use_another_descriptor() -> None:
    """Any but the null device, three times, and the pipe for the reply."""
    usable = [descriptor for descriptor in range(1_024) if is_usable(descriptor)]
    if len(usable) == 4:
        raise OSError(errno.EBADF, "no other")


def is_usable(descriptor: int) -> bool:
    try:
        os.write(descriptor, b"")
    except OSError:
        return False
    return True


def import_late() -> None:
    import wave

    assert wave


FORKS = {"fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435)}

DENIED: dict[str, tuple[Attempt, str]] = {
    **{name: by_number(numbers[COLUMN]) for name, numbers in CALLS.items() if numbers[COLUMN] is not None},
    **{
        f"{name} by another convention": by_number(X32 | number)
        for name, number in {"open": 2, "write": 1, "mmap": 9, "execve": 520, "ptrace": 521}.items()
    },
    **{f"the call {number}": by_number(number) for number in (400, 600, 1_000, 100_000, -1)},
    **{name: fork_by(numbers[COLUMN]) for name, numbers in FORKS.items() if numbers[COLUMN] is not None},
    "clone with namespaces": fork_by(FORKS["clone"][COLUMN] or 0, 0x7E02_0000 | signal.SIGCHLD),
    # Files, as Python opens them.
    "read the users": read("/etc/passwd"),
    "read the passwords": read("/etc/shadow"),
    "read our own code": read(__file__),
    "read our memory": read("/proc/self/mem"),
    "read the environment": read("/proc/self/environ"),
    "read the first process": read("/proc/1/environ"),
    "read through the root of another": read("/proc/1/root/etc/passwd"),
    "open our reply again": read("/proc/self/fd/3"),
    "read shared memory": read("/dev/shm/x"),
    "read the kernel's memory": read("/dev/mem"),
    "write to /tmp": write("/tmp/sapo-escaped"),
    "write to shared memory": write("/dev/shm/sapo-escaped"),
    "write our code": write(__file__),
    "write a core pattern": write("/proc/sys/kernel/core_pattern"),
    "change our memory limits": write("/proc/self/oom_score_adj"),
    "write to the terminal": write("/dev/tty"),
    "list the root": (lambda: os.scandir("/"), "EPERM"),
    "list our descriptors": (lambda: os.scandir("/proc/self/fd"), "EPERM"),
    "make a link": (lambda: Path("/tmp/sapo-escaped").symlink_to("/etc/passwd"), "EPERM"),
    "make a pipe": (lambda: os.mkfifo("/tmp/sapo-escaped"), "EPERM"),
    "use another descriptor": (use_another_descriptor, "EBADF"),
    "load a library": (lambda: ctypes.CDLL("libanl.so.1"), "OSError"),
    "import a module": (import_late, "ModuleNotFoundError"),
    # Network, by family.
    "speak IPv4": open_socket(socket.AF_INET),
    "speak IPv6": open_socket(socket.AF_INET6),
    "speak UDP": open_socket(socket.AF_INET, socket.SOCK_DGRAM),
    "speak raw IP": open_socket(socket.AF_INET, socket.SOCK_RAW),
    "speak to local sockets": open_socket(socket.AF_UNIX),
    "speak to the kernel by netlink": open_socket(16, socket.SOCK_RAW),
    "speak to the hypervisor": open_socket(40),
    "speak packets": open_socket(17, socket.SOCK_RAW),
    "speak to the kernel's ciphers": open_socket(38, 5),
    "speak bluetooth": open_socket(31, socket.SOCK_RAW),
    "make a pair of sockets": (socket.socketpair, "EPERM"),
    # Processes, as Python makes and reaches them.
    "fork by Python": (os.fork, "EPERM"),
    "spawn": (lambda: os.posix_spawn("/bin/true", ["true"], {}), "EPERM"),
    "become a shell": (lambda: os.execv("/bin/sh", ["sh", "-c", "exit 0"]), "EPERM"),
    "signal ourselves": (lambda: os.kill(os.getpid(), 0), "EPERM"),
    "signal everybody": (lambda: os.kill(-1, 0), "EPERM"),
    "signal our group": (lambda: os.killpg(0, 0), "EPERM"),
    "signal the first process": (lambda: os.kill(1, 0), "EPERM"),
    "start a thread": (lambda: _thread.start_new_thread(int, ()), "RuntimeError"),
    "start a thread by its class": (threading.Thread(target=int).start, "RuntimeError"),
    # Resources.
    "map four gigabytes": (lambda: mmap.mmap(-1, 4 << 30), "ENOMEM"),
    "make a long text": (lambda: "x" * (1 << 30), "MemoryError"),
    "fill the memory": (fill_memory, "MemoryError"),
    "map executable memory": (map_executable, "EPERM"),
    "make memory executable": (make_memory_executable, "EPERM"),
    "raise our memory limit": (lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)), "ValueError"),
    "raise our processor limit": (lambda: resource.setrlimit(resource.RLIMIT_CPU, (100, 100)), "ValueError"),
    "duplicate a descriptor": (lambda: os.dup(1), "EPERM"),
    "make a pipe of ours": (os.pipe, "EPERM"),
    "lower our priority's number": (lambda: os.setpriority(os.PRIO_PROCESS, 0, -20), "EPERM"),
}


def to_reply(data: bytes) -> Attempt:
    """Write this to the descriptor for the reply, and go on as if nothing had been."""
    return lambda: [os.write(descriptor, data) for descriptor in range(3, 16) if is_usable(descriptor)]


def close_reply() -> None:
    for descriptor in range(3, 16):
        if is_usable(descriptor):
            os.close(descriptor)


def give_up(error: type[BaseException]) -> Attempt:
    def attempt() -> None:
        raise error

    return attempt


def recurse() -> object:
    return recurse()


FORGED = json.dumps(["forged", "00" * 32, "", ""]).encode() + b"\n"

ENDED: dict[str, tuple[Attempt, str]] = {
    "end well without a word": (lambda: os._exit(0), "malformed"),
    "end as if never confined": (lambda: os._exit(70), "no_sandbox"),
    "end as if failed": (lambda: os._exit(71), "died"),
    "end with status 255": (lambda: os._exit(255), "died"),
    "abort": (os.abort, "died"),
    "read at address 0": (lambda: ctypes.string_at(0), "died"),
    "read at the end of memory": (lambda: ctypes.string_at(2**64 - 4096), "died"),
    "close the reply": (close_reply, "died"),
    "close every descriptor": (lambda: os.closerange(0, 1_024), "died"),
    "reply twice": (to_reply(FORGED), "malformed"),
    "reply with nothing first": (to_reply(b'"nothing"\n'), "malformed"),
    "reply with more than asked": (to_reply(FORGED * 200), "malformed"),
    "reply with rewards not asked for": (to_reply(FORGED.replace(b'""', b'"1"')), "malformed"),
    "reply with a frame": (to_reply(b'\x14\x00\x00\x00{"failed":"timeout"}'), "malformed"),
    "reply with a ready frame": (to_reply(b'\x0c\x00\x00\x00{"ready": {}}'), "malformed"),
    "reply with half a line": (to_reply(b'["forged", "'), "malformed"),
    "reply with bytes": (to_reply(bytes(range(256))), "malformed"),
    "a question that is too long": (lambda: "x" * 40_000, "task"),
    "a question of half a character": (lambda: "\ud800", "task"),
    "exit politely": (give_up(SystemExit), "task"),
    "interrupt": (give_up(KeyboardInterrupt), "task"),
    "stop a generator": (give_up(GeneratorExit), "task"),
    "recurse": (recurse, "task"),
}


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def pay_for_everything() -> None:
    for row in DATASETS.values():
        object.__setattr__(row, "scorer", lambda *_: True)
    sapo_node.verification.sandbox.zygote.score = lambda _, __, levels=1: levels


CONFINED: dict[str, Attempt] = {
    "pay for everything": pay_for_everything,
    "build other tasks": lambda: setattr(
        sapo_node.verification.sandbox.zygote, "build_task", lambda *_: Task("", "forged", "")
    ),
    "write another reply": lambda: setattr(sapo_node.verification.sandbox.zygote, "encode_line", lambda _: FORGED),
    "another digest": lambda: setattr(sapo_node.verification.sandbox.zygote, "task_digest", lambda *_: bytes(32)),
    "forget all modules": sys.modules.clear,
    "poison a module": lambda: sys.modules.update(reasoning_gym=None, json=None),
    "forget the plug-ins": plugins.of.cache_clear,
    "leave out a plug-in": lambda: plugins.leave_out("evil.escape", "gone"),
    "replace a builtin": lambda: setattr(builtins, "len", lambda _: 0),
    "ignore signals": ignore_signals,
    "thaw the garbage": lambda: (gc.unfreeze(), gc.collect()),
    "lift the recursion limit": lambda: sys.setrecursionlimit(10**6),
    "trace calls": lambda: sys.settrace(lambda *_: None),
    "audit events": lambda: sys.addaudithook(lambda *_: None),
    "change the environment": os.environ.clear,
}
