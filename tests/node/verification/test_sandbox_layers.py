"""Each layer of the sandbox, alone, stops what it is there for, and together they stop every attack we know."""

import functools
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sapo_node.verification.sandbox import seccomp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox's layers are those of Linux")

BLOCKED_BY = {
    "rlimits": ["fork", "start_thread", "allocate", "burn"],
    "landlock": [
        "read_file",
        "write_file",
        "make_folder",
        "execute",
        "connect_tcp",
        "connect_abstract_socket",
        "signal_parent",
    ],
    "namespaces": ["connect_tcp", "send_udp", "connect_abstract_socket"],
    "seccomp": [
        "read_file",
        "write_file",
        "make_folder",
        "change_mode",
        "connect_tcp",
        "send_udp",
        "connect_abstract_socket",
        "fork",
        "start_thread",
        "execute",
        "signal_parent",
        "trace",
        "map_executable",
        "raise_limit",
        "leave_namespace",
        "import_late",
    ],
}

EVERY_ATTACK = sorted({attack for attacks in BLOCKED_BY.values() for attack in attacks})
NEWER_LANDLOCK = {"connect_tcp": 4, "connect_abstract_socket": 6, "signal_parent": 6}


@functools.cache
def outcomes(layer: str) -> dict[str, str]:
    """What the attacks of sandbox_probe.py achieve under one layer, all of them or none."""
    probe = Path(__file__).with_name("sandbox_probe.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result: dict[str, str] = json.loads(
        subprocess.check_output([sys.executable, str(probe), layer], env=environment, cwd="/")
    )
    return result


def landlock_abi() -> int:
    import ctypes

    return int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


@pytest.mark.parametrize(("layer", "attack"), [(layer, a) for layer, attacks in BLOCKED_BY.items() for a in attacks])
def test_a_layer_alone_blocks_what_it_is_there_for(layer: str, attack: str) -> None:
    if layer == "landlock" and landlock_abi() < NEWER_LANDLOCK.get(attack, 1):
        pytest.skip("this kernel's Landlock is older")
    if outcomes(layer)[attack] == "missing":
        pytest.skip("this kernel lacks the layer")
    assert outcomes(layer)[attack] == ("SIGXCPU" if attack == "burn" else "blocked")


@pytest.mark.parametrize("attack", sorted(set(EVERY_ATTACK) - {"burn", "trace", "import_late"}))
def test_each_attack_gets_through_without_layers(attack: str) -> None:
    assert outcomes("none")[attack] == "open"


@pytest.mark.parametrize("attack", sorted(set(EVERY_ATTACK) - {"burn"}))
def test_the_whole_sandbox_blocks_every_attack(attack: str) -> None:
    """But for `burn`, which costs a second: `allocate` shows that the limits are set."""
    assert outcomes("all")[attack] == "blocked"


def run_bpf(program: bytes, architecture: int, number: int, third_argument: int = 0) -> int:
    """The verdict of a seccomp program, by a machine of our own for the four instructions that it uses."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, 0, 0, third_argument, 0, 0, 0)
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, true, false, value = code[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += true if accumulator == value else false
            case 0x45:
                at += true if accumulator & value else false
            case 0x06:
                return int(value)
            case _:
                pytest.fail(f"unknown instruction {operation:#x}")


ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000
MACHINES = [
    # machine, audit architecture, then numbers: write, exit_group, mmap, mprotect, openat, execve, socket
    pytest.param("x86_64", 0xC000003E, (1, 231, 9, 10, 257, 59, 41), id="x86_64"),
    pytest.param("aarch64", 0xC00000B7, (64, 94, 222, 226, 56, 221, 198), id="aarch64"),
]


@pytest.mark.parametrize(("machine", "architecture", "numbers"), MACHINES)
def test_the_filter_decides_by_its_list(machine: str, architecture: int, numbers: tuple[int, ...]) -> None:
    program = seccomp.program(machine)
    assert program is not None
    write, exit_group, mmap, mprotect, *forbidden = numbers
    for number in (write, exit_group, mmap, mprotect):
        assert run_bpf(program, architecture, number) == ALLOW
    for number in (*forbidden, -1, 0x40000000 | write):
        assert run_bpf(program, architecture, number) == EPERM
    for number in (mmap, mprotect):
        assert run_bpf(program, architecture, number, third_argument=3) == ALLOW
        assert run_bpf(program, architecture, number, third_argument=7) == EPERM


@pytest.mark.parametrize(("machine", "architecture", "numbers"), MACHINES)
def test_a_call_of_another_architecture_kills(machine: str, architecture: int, numbers: tuple[int, ...]) -> None:
    program = seccomp.program(machine)
    assert program is not None
    assert run_bpf(program, 0x40000003, numbers[0]) == KILL
    assert architecture != 0x40000003


def test_an_unknown_machine_has_no_filter() -> None:
    assert seccomp.program("riscv64") is None
