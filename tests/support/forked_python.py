"""An interpreter for `sys.executable` that has a fork server start the processes whose imports take seconds.

`processes.py` writes it as a program into the folder of the sockets. It becomes the interpreter itself for all else.
The forked process ends when this one is killed, because the server sees the end of the connection.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

SERVERS = {
    "sapo_node.learner": "learner",
    "sapo_node.learner.export": "learner",
}


def server_of(arguments):
    """The fork server for `python -P -m MODULE ...`, or for code that asks the learner; None for all else."""
    if arguments[:2] == ["-P", "-m"]:
        return SERVERS.get(arguments[2])
    return "learner" if arguments[:2] == ["-P", "-c"] and "sapo_node.learner" in arguments[2] else None


def fork(server, program, arguments):
    """Exit code, or the negative number of a signal, of the forked process."""
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "program": program,
        "name": program,
        "arguments": arguments,
        "env": dict(os.environ),
        "cwd": str(Path.cwd()),
        "umask": umask,
        "memory": 0,
        "ignores_interrupt": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "python": sys.argv[0],
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(server))
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        for descriptor in (0, 1, 2):
            os.close(descriptor)  # the end of the forked process closes them
        assert connection.recv(64), "the fork server has ended"
        status = connection.recv(64)
    return os.waitstatus_to_exitcode(int(status)) if status else 1


if __name__ == "__main__":
    if not (name := server_of(sys.argv[1:])):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    _, flag, program, *arguments = sys.argv[1:]
    code = fork(Path(sys.argv[0]).with_name(name), f"{flag} {program}", arguments)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)
