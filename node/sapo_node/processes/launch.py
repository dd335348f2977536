"""A script that makes a child process end with its parent, and then executes the program of the child.

`python -I -S launch.py PARENT_PID PROGRAM ARGUMENT...`. The kernel keeps the parent-death signal across exec. A
`preexec_fn` would make the same call in a fork of the node, which has threads, where it may deadlock.

The child ignores SIGINT, also after exec. A service manager may send it to all processes of a node at once. The node
then ends its round, for which it needs the child, and ends the child itself.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """On Linux, let the kernel send this process SIGKILL when the thread that started it ends.

    Exits at once if `parent` has already ended. A change of credentials clears the setting: call this again after it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - runs the program without a shell
