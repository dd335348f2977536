"""The layers that confine the sandbox. Each is a call to the kernel, and each function says what it blocks.

The zygote calls `confine_zygote` once, before the first request. Each forked child calls `confine_child` before it
reads peers' text. No layer relies on another layer. If a platform lacks a layer, the functions report it as missing.
"""

import ctypes
import os
import resource
import struct
import sys
from dataclasses import dataclass

from sapo_node.processes.launch import die_with_parent
from sapo_node.verification.sandbox import seccomp

LAYERS = ("rlimits", "seccomp", "landlock", "namespaces", "unprivileged")
REQUIRED = ("rlimits", "seccomp")
"""Without these layers the node trains on no external groups, unless the operator sets --no-sandbox."""

ADDRESS_SPACE = 768 * 1024 * 1024
"""Bytes that the zygote and each child may map. The zygote maps about 220 MB, and a child starts as its copy."""

DESCRIPTORS = 16
"""File descriptors that a child may have."""

_NOBODY = 65_534

_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWIPC = 0x0800_0000
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_VERSION_FLAG = 1
_LANDLOCK_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""ABI version -> number of file-system rights (bits from 0) that it knows. Later versions know those of version 5."""

_CAPABILITY_VERSION_3 = 0x2008_0522


class LockdownError(OSError):
    """The kernel refused a layer."""


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """Limits of a child, and which of its layers this platform has. The child must apply all of these layers."""

    cpu_seconds: int
    rlimits: bool = True
    seccomp: bool = True


def confine_zygote() -> dict[str, bool]:
    """Give up every right that neither scoring nor forking needs. Return whether each of these layers holds.

    If all hold, this process can open no file, make no TCP connection, signal no outside process and see no network.
    """
    parent = os.getppid()
    namespaces = os.geteuid() == 0 and _try(_leave_namespaces, _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWNS)
    unprivileged = os.geteuid() != 0 or _try(_become_nobody)
    if not namespaces:
        rights = _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWNS
        namespaces = _try(_leave_namespaces, rights)
    _try(_drop_capabilities)
    _try(_prctl, _PR_SET_NO_NEW_PRIVS, 1)
    _try(_prctl, _PR_SET_DUMPABLE, 0)
    landlock = _try(_restrict_with_landlock)
    # The kernel clears the parent-death signal when credentials change, so set it again.
    die_with_parent(parent)
    return {"landlock": landlock, "namespaces": namespaces, "unprivileged": unprivileged}


def probe_child_layers() -> dict[str, bool]:
    """Return whether each layer of a child holds here. A forked child applies them and tries what they forbid."""
    pid = os.fork()
    if pid == 0:
        held = 0
        try:
            held |= 1 if _try(limit_resources, 5) else 0
            held |= 2 if _try(install_filter) and not _try(os.kill, os.getpid(), 0) else 0
        finally:
            os._exit(held)
    held = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"rlimits": held in {1, 3}, "seccomp": held in {2, 3}}


def confine_child(limits: ChildLimits, zygote: int) -> None:
    """Apply the layers that the zygote cannot have, because it forks. Raises LockdownError if the kernel refuses one.

    Afterwards only the calls of seccomp.py work, memory and processor time are bounded, and this process cannot write
    to a file. `zygote` is the process id of the parent. When the parent dies, the kernel kills this child.
    """
    die_with_parent(zygote)
    if limits.rlimits:
        limit_resources(limits.cpu_seconds)
    if limits.seccomp:
        install_filter()


def limit_memory() -> None:
    """Bound the memory that this process and each process it forks may map. Raises LockdownError."""
    _limit(resource.RLIMIT_AS, ADDRESS_SPACE, ADDRESS_SPACE)


def limit_resources(cpu_seconds: int) -> None:
    """Bound memory, processor time and descriptors. Forbid new processes, core dumps and growing files."""
    limit_memory()
    _limit(resource.RLIMIT_CORE, 0, 0)
    _limit(resource.RLIMIT_FSIZE, 0, 0)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS)
    _limit(resource.RLIMIT_NPROC, 0, 0)
    # At the soft limit the kernel sends SIGXCPU. So the zygote can tell a time-out from another death.
    _limit(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1)


def _limit(what: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(what, (soft, hard))
    except (OSError, ValueError) as error:
        raise LockdownError(f"resource limits: {error}") from error


def install_filter() -> None:
    """Install the system-call filter. Raises LockdownError if that fails or there is no filter for this machine."""
    bpf = seccomp.program()
    if bpf is None:
        raise LockdownError("seccomp: no filter for this machine")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    code = ctypes.create_string_buffer(bpf, len(bpf))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(bpf) // 8, ctypes.addressof(code)))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))


def _try(layer: object, *arguments: object) -> bool:
    assert callable(layer)
    try:
        layer(*arguments)
    except OSError:
        return False
    return True


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise LockdownError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int, pointer: int = 0) -> None:
    if sys.platform != "linux":
        raise LockdownError(f"prctl {option}: not on {sys.platform}")
    arguments = [ctypes.c_ulong(number) for number in (value, pointer, 0, 0)]
    _check(_libc().prctl(ctypes.c_int(option), *arguments), f"prctl {option}")


def _syscall(number: int, *arguments: object) -> int:
    if sys.platform != "linux":
        raise LockdownError(f"system call {number}: not on {sys.platform}")
    return _check(_libc().syscall(ctypes.c_long(number), *arguments), f"system call {number}")


def _leave_namespaces(flags: int) -> None:
    """Leave the shared namespaces: see no network interface but a loopback that is down, no shared memory of others."""
    if sys.platform != "linux":
        raise LockdownError(f"namespaces: not on {sys.platform}")
    _check(_libc().unshare(ctypes.c_int(flags)), "unshare")


def _become_nobody() -> None:
    """Become the user nobody, who has no rights over files and processes of other users.

    Drop the groups first: afterwards that is no longer allowed.
    """
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _drop_capabilities() -> None:
    """Drop all capabilities: those of root, and those that a new user namespace gives its first process."""
    if sys.platform != "linux":
        raise LockdownError(f"capabilities: not on {sys.platform}")
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    _check(_libc().capset(header, ctypes.create_string_buffer(24)), "capset")


def _restrict_with_landlock() -> None:
    """Forbid opening, making, moving and removing files; from ABI 4 TCP, from ABI 6 abstract sockets and signals."""
    abi = _syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION_FLAG))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    files = (1 << _LANDLOCK_FILE_RIGHTS[min(abi, 5)]) - 1
    fields = [files, *([3] if abi >= 4 else []), *([3] if abi >= 6 else [])]
    rules = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _syscall(
        _LANDLOCK_CREATE_RULESET,
        ctypes.create_string_buffer(rules, len(rules)),
        ctypes.c_size_t(len(rules)),
        ctypes.c_uint32(0),
    )
    try:
        _syscall(_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
