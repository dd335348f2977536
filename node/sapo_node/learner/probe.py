"""Tries a model folder in a process of its own before the learner uses it.

A folder may hold a template that never ends, a tokenizer that fills the memory, sizes that no machine has. The probe
does with the folder what the learner will do, all but reading weights, under limits of time and memory. Whatever
happens to that process, the learner has one ModelError.

The process is a fork: it shares the libraries that are imported already, which take longer than the probe itself. So
the learner calls this before it computes anything.
"""

import multiprocessing
import os
import resource
import signal
import string
from contextlib import suppress
from multiprocessing.connection import Connection

import psutil

from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.folder import ModelError, line_of, model_folder
from sapo_node.learner.model import rehearsed
from sapo_node.processes.launch import die_with_parent
from sapo_protocol.errors import LocalError

SECONDS = 10
"""Bound of the probe's processor time. A tokenizer of 262,000 tokens takes 3 of them on a slow core."""
PATIENCE = 30
"""Bound of its time in seconds, for a machine that has much else to do."""
MEMORY = 4 * 2**30
"""Bytes that the probe may take beyond what this process has."""
QUESTION = "What is 2 + 2?"
FOREIGN = "\n".join(
    [*(sign * 60 + "\0" for sign in string.printable), "é\u0301\u202e\U0001f468\u200d\ufffd中\U0010ffff"]
)
"""A text such as a peer may send: long runs, which slow regular expressions down, and signs that are rare."""
_REPLY_BYTES = 1024


def require_readable(options: LearnerOptions) -> None:
    """Raises ModelError where the folder of the model cannot be read within the limits, or what it holds fails.

    The policy in the package is known to be good, so it costs no probe.
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
        # The process has ended, so this reads what is there and waits for nothing.
        found = receiver.recv_bytes(_REPLY_BYTES).decode("utf-8", "replace")
    except (EOFError, OSError):
        found = "it takes too much memory, or crashes what reads it"
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
    except BaseException as error:  # noqa: BLE001 - the folder decides what is raised here, panics of pyo3 included
        found = f"{type(error).__name__}: {line_of(error)}"
    sender.send_bytes(found.encode(errors="replace")[:_REPLY_BYTES])


def _use(options: LearnerOptions) -> None:
    """Do what the learner will do with the model, without its weights."""
    policy = rehearsed(options)
    policy.prompt_tokens(QUESTION)
    policy.overlapping(FOREIGN, [(0, 1)])
    policy.decode(policy.encode_foreign(FOREIGN) or ())


def _confine(parent: int) -> None:
    """Bound this process, and have it say nothing on the operator's terminal."""
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
        # A system that lacks a limit, or has a lower one, goes on with what it has. The soft limit alone is set: at
        # the hard one of processor time the process would be killed without a word why.
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (bound, resource.getrlimit(what)[1]))
