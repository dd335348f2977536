"""The program of a fork server: it imports a part of this project once, and forks a process for each request.

    python fork_server.py commands|learner    (stdin: a listening socket of type SOCK_SEQPACKET)

A request is one JSON object, with the descriptors for stdin, stdout and stderr. The server answers with the process id
and, when the process has ended, with its exit status. When the other side closes the connection first, the server kills
the process and all that it has started. `processes.py` and `forked_python.py` are the other side.
"""

import atexit
import gc
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from sapo_node.processes.launch import die_with_parent

MODULES = {
    "commands": (
        *("sapo_node.cli.main", "sapo_adversary.cli.main", "sapo_node.app.running_node", "sapo_node.net.libp2p"),
        *("sapo_node.feed.server", "sapo_node.observability.curves", "sapo_node.verification.sandbox.sandbox"),
    ),
    "learner": ("sapo_node.learner.service", "sapo_node.learner.push", "transformers.generation"),
}
"""Modules that most processes of a kind import."""
LOST_OUTPUT = 120
"""Exit code of an interpreter that could not write its last output."""
PACKAGES = {"commands": ("sapo_node.cli.commands", "sapo_adversary.cli"), "learner": ()}
"""Packages that are imported with all of their modules."""


def import_all(kind):
    gc.disable()
    for package in PACKAGES[kind]:
        for module in sorted(Path(import_module(package).__file__).parent.glob("[a-z]*.py")):
            import_module(f"{package}.{module.stem}")
    for module in MODULES[kind]:
        import_module(module)
    gc.freeze()  # else each fork looks through, and so copies, all that was imported
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork has one thread, and others may hold locks"


def serve(listener, kind):
    """Answer requests until the parent ends. A fork returns from here as well, with its request and descriptors."""
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    running = {}
    """Process id by connection."""
    imported = False
    while True:
        for key, _ in ready.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                ready.register(connection, selectors.EVENT_READ)
            elif key.data is not None:  # a process has ended
                pid, connection = key.data
                _kill_group(pid)
                _, status = os.waitpid(pid, 0)
                ready.unregister(key.fileobj)
                os.close(key.fileobj)
                if running.pop(connection, None):
                    with suppress(OSError):
                        connection.send(str(status).encode())
                    ready.unregister(connection)
                    connection.close()
            else:
                connection = key.fileobj
                data, files, _, _ = socket.recv_fds(connection, 2**20, 3)
                if not data:
                    _kill_group(running.pop(connection, None))
                    ready.unregister(connection)
                    connection.close()
                    continue
                if not imported:
                    import_all(kind)
                    imported = True
                server = os.getpid()
                if not (pid := os.fork()):
                    die_with_parent(server)
                    return json.loads(data), files
                for file in files:
                    os.close(file)
                running[connection] = pid
                ready.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
                connection.send(str(pid).encode())


def _kill_group(pid):
    if pid:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def become(request, files):
    """Take the place of the process that was asked for: its descriptors, folder, environment and arguments."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1_024)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if request["umask"] >= 0:
        os.umask(request["umask"])
    if request["memory"]:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory"],) * 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN if request["ignores_interrupt"] else signal.default_int_handler)
    sys.executable = request["python"]
    sys.argv = [request["name"], *request["arguments"]]


def play(program):
    """Run `-m module`, `-c code` or `module:function`, and end without taking down what was imported."""
    code = 0
    try:
        if program.startswith("-m "):
            runpy.run_module(program[3:], run_name="__main__", alter_sys=True)
        elif program.startswith("-c "):
            exec(program[3:], {"__name__": "__main__"})
        else:
            module, _, function = program.partition(":")
            code = getattr(import_module(module), function)()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"Exception ignored in sys.stdout: {error}\n")
        code = LOST_OUTPUT
    os._exit(code or 0)


if __name__ == "__main__":
    kind = sys.argv[1]
    die_with_parent(os.getppid())
    request, files = serve(socket.socket(fileno=os.dup(0)), kind)
    become(request, files)
    if kind == "commands":
        gc.enable()  # the learner starts without it
    play(request["program"])
