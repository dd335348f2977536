"""The system-call filter of a sandboxed child: a BPF program that this module assembles without libseccomp.

The filter is an allow-list; every other call fails with EPERM. The child can compute, use the descriptors it holds,
sleep and exit. It cannot open, connect, fork, execute, signal or map memory as executable. There is a filter for x86_64
and aarch64. For another machine `program` returns None, and the caller must report the layer as missing.
"""

import platform
import struct

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_EPERM = 0x00050000 | 1

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data. An argument has 8 bytes, with its low word first on both machines."""

_PROT_EXEC = 4

_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_CALLS = {
    # name: number on x86_64, number on aarch64
    "read": (0, 63),
    "write": (1, 64),
    "writev": (20, 66),
    "close": (3, 57),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "brk": (12, 214),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "futex": (202, 98),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "gettimeofday": (96, 169),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getrusage": (98, 165),
    "restart_syscall": (219, 128),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "membarrier": (324, 283),
}

_MAPPING_CALLS = {"mmap": (9, 222), "mprotect": (10, 226)}
"""Allowed unless their third argument asks for executable memory."""


def program(machine: str | None = None) -> bytes | None:
    """Return the filter for `machine` (default: this one), an array of struct sock_filter; None for another machine."""
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCHITECTURE:
        return None
    column = 0 if machine == "x86_64" else 1
    plain = [numbers[column] for numbers in _CALLS.values()]
    mapping = [numbers[column] for numbers in _MAPPING_CALLS.values()]

    # Layout: check architecture, load number, mapping tests, plain tests, EPERM, mapping check (3), ALLOW.
    tests = [*mapping, *plain]
    to_allow = len(tests) + 4
    code = [
        _instruction(_LOAD_WORD, _ARCHITECTURE),
        _instruction(_JUMP_EQUAL, _AUDIT_ARCHITECTURE[machine], true=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD_WORD, _NUMBER),
    ]
    for index, number in enumerate(tests):
        target = len(tests) + 1 if index < len(mapping) else to_allow
        code.append(_instruction(_JUMP_EQUAL, number, true=target - index - 1))
    code += [
        _instruction(_RETURN, _EPERM),
        _instruction(_LOAD_WORD, _ARGUMENTS + 2 * 8),
        _instruction(_JUMP_ANY_BIT, _PROT_EXEC, false=1),
        _instruction(_RETURN, _EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(code)


def _instruction(code: int, value: int, *, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)
