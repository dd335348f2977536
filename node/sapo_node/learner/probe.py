"""Tries a model folder in a child process before the learner uses it.

A folder may hold a template that never ends, a tokenizer that fills the memory, or sizes that no machine has. The child
does what the learner will do with the folder, except reading weights, under limits of time and memory. Whatever happens
to the child, the learner gets one ModelError.

The child is a fork, because importing the libraries again would take longer than the probe. So the learner must call
this before it computes anything.
"""

import multiprocessing
import os
import resource
import signal
import string
from contextlib import suppress
from multiprocessing.connection import Connection

import psutil

from sapo_node.groups.messages import Example, LearnerOptions, Prompt
from sapo_node.learner.folder import ModelError, line_of, model_folder
from sapo_node.learner.model import rehearsed
from sapo_node.processes.launch import die_with_parent
from sapo_protocol.errors import LocalError

SECONDS = 10
"""Seconds of processor time that the probe may take. A tokenizer of 262,000 tokens takes 3 s on a slow core."""
PATIENCE = 30
"""Seconds of wall time that the probe may take: other processes may use the processor."""
MEMORY = 4 * 2**30
"""Bytes that the probe may map beyond what this process has mapped."""
QUESTION = "What is 2 + 2?"
FOREIGN = "\n".join(
    [*(sign * 60 + "\0" for sign in string.printable), "é\u0301\u202e\U0001f468\u200d\ufffd中\U0010ffff"]
)
"""A text that a peer could send: long runs, which slow down regular expressions, and rare characters."""
_REPLY_BYTES = 1024


def require_readable(options: LearnerOptions) -> None:
    """Raises ModelError if the folder cannot be used within the limits of time and memory.

    The seed policy in the package is known to be good, so this does not probe it.
    """
    if options.model == "seed":
        return
    folder = model_folder(options.model)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_probe, args=(options, sender, os.getpid()))
    child.start()
    sender.close()
    child.join(PATIENCE)
    late = child.is_alive()
    child.kill()
    child.join()
    late = late or child.exitcode == -signal.SIGXCPU
    try:
        # The child has ended, so this reads without waiting.
        found = receiver.recv_bytes(_REPLY_BYTES).decode("utf-8", "replace")
    except (EOFError, OSError):
        found = "it takes too much memory, or crashes the libraries that read it"
    finally:
        receiver.close()
        child.close()
    if late:
        found = f"it takes over {SECONDS} s of processor time; give another model"
    if found:
        raise ModelError(found if str(folder) in found else f"{folder} cannot be used: {found}")


def _probe(options: LearnerOptions, sender: Connection, parent: int) -> None:
    _confine(parent)
    found = ""
    try:
        _use(options)
    except LocalError as error:
        found = str(error)
    except BaseException as error:  # noqa: BLE001 - a folder may cause any exception, even a panic of pyo3
        found = f"{type(error).__name__}: {line_of(error)}"
    sender.send_bytes(found.encode(errors="replace")[:_REPLY_BYTES])


def _use(options: LearnerOptions) -> None:
    """Do what the learner will do with the model, except reading its weights."""
    policy = rehearsed(options)
    policy.prompt_tokens(Prompt(QUESTION, (Example(QUESTION, FOREIGN[:60]),)))
    policy.overlapping(FOREIGN, [(0, 1)])
    policy.decode(policy.encode_foreign(FOREIGN) or ())


def _confine(parent: int) -> None:
    """Limit the resources of this process, and send its output to /dev/null."""
    die_with_parent(parent)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CPU: SECONDS,
        resource.RLIMIT_AS: psutil.Process().memory_info().vms + MEMORY,
    }
    for what, bound in limits.items():
        # If the system lacks a limit or has a lower one, the probe runs with that. Only the soft limits are set: at
        # the soft limit of processor time the kernel sends SIGXCPU, and at the hard one SIGKILL.
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (bound, resource.getrlimit(what)[1]))
