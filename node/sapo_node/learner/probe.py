"""Tries a model folder in a child process before the learner uses it.

A folder may hold a template that never ends, a tokenizer that fills the memory, or sizes that no machine has. The child
does what the learner will do with the folder, except reading weights, under limits of time and memory. Whatever happens
to the child, the learner gets one ModelError.

The child is a fork, because importing the libraries again would take longer than the probe. So the learner must call
this before it computes anything.
"""

import multiprocessing
import os
import signal
import string
from multiprocessing.connection import Connection

from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.prompt import Example, Prompt
from sapo_node.learner.confine import confine
from sapo_node.learner.folder import ModelError, model_folder
from sapo_node.learner.model import rehearsed
from sapo_node.processes.launch import die_with_parent
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import line_of

SECONDS = 10
"""Seconds of processor time that the probe may take. A tokenizer of 262,000 tokens takes 3 s on a slow core."""
PATIENCE = 120
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
    is_late = child.is_alive()
    child.kill()
    child.join()
    is_costly = child.exitcode == -signal.SIGXCPU
    try:
        # The child has ended, so this reads without waiting.
        found = receiver.recv_bytes(_REPLY_BYTES).decode("utf-8", "replace")
    except (EOFError, OSError):
        found = "it takes too much memory, or crashes the libraries that read it"
    finally:
        receiver.close()
        child.close()
    if is_costly:
        found = f"it takes over {SECONDS} s of processor time; give another model"
    elif is_late:
        found = f"it was not read within {PATIENCE} s; if this machine has other work, start again when it has less"
    if found:
        raise ModelError(found if str(folder) in found else f"{folder} cannot be used: {found}")


def _probe(options: LearnerOptions, sender: Connection, parent: int) -> None:
    die_with_parent(parent)
    confine(seconds=SECONDS, memory=MEMORY, file_bytes=0)
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
