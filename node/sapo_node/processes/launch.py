"""Run as a script between fork and exec of a child process: makes the child die with its parent, then becomes it.

`python -I -S launch.py PARENT_PID PROGRAM ARGUMENT...`. The kernel keeps the parent-death signal across exec. A
`preexec_fn` would run the same call inside a fork of the node's threads, where it may deadlock.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process with SIGKILL when the thread that started it ends; Linux only.

    Exits at once when `parent` is already gone. A change of credentials clears the setting: call this again then.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the whole point: become the program, with no shell
