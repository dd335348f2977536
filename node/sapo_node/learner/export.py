"""Writes what a node has learnt as an ordinary Hugging Face folder; a program of its own, since torch is in it.

Reads the newest good checkpoint and changes nothing where it lies, so it may run beside the node. Adapters are merged
into the weights, so that whoever loads the folder needs nothing else.
"""

import json
import shutil
import sys
from pathlib import Path

from sapo_node.learner import checkpoint
from sapo_node.learner.messages import LearnerOptions
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_protocol.errors import LocalError

_UNFINISHED = ".unfinished"


def export(options: LearnerOptions, output: Path) -> int:
    """Write the folder, which must not be there; the step of its weights. Raises LocalError."""
    if output.exists():
        raise LocalError(f"{output} is there already; name a folder that is not")
    trainer = Trainer(load(options), options)
    if not checkpoint.peek(trainer, Path(options.checkpoints)):
        raise LocalError(
            f"there is no good checkpoint in {options.checkpoints} yet: a node writes one every ten rounds, "
            f"and when it stops"
        )
    policy = trainer.policy
    model = policy.model.merge_and_unload() if options.lora else policy.model
    unfinished = output.with_name(output.name + _UNFINISHED)
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        model.save_pretrained(unfinished)
        policy.tokenizer.save_pretrained(unfinished)
        unfinished.rename(output)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise LocalError(f"cannot write {output} ({error})") from error
    return trainer.step


def main(options: str, output: str) -> int:
    """Options as JSON; prints the step as JSON, or says on stderr why there is none."""
    try:
        step = export(LearnerOptions(**json.loads(options)), Path(output))
    except LocalError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps({"step": step}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
