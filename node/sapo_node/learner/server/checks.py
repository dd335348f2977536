"""Compares a server with this node: the model that it names, the log-probabilities that it returns, and whether it
samples with the adapters that it loads.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from sapo_node.groups.messages import is_hub_name
from sapo_node.learner.batch import Row, completion_logits, micro_batches
from sapo_node.learner.folder import model_folder
from sapo_node.learner.forward import Tokens
from sapo_node.learner.generate import Draft
from sapo_node.learner.grpo import token_logprobs
from sapo_node.learner.model import Policy
from sapo_node.learner.server.connection import ServerFailed
from sapo_node.learner.server.engines import Served
from sapo_protocol import LocalError
from sapo_protocol.files import sha256_of
from sapo_protocol.printable import excerpt

COMPARED = 2
"""Completions of each prompt whose log-probabilities are compared: the longest, and one drawn at random."""
NOISE = 0.2
"""Standard deviation of the weights of the adapter with which a server shows that it samples with adapters."""
_GENERATOR_SEED = 0


def require_model(model: str, served: Served) -> None:
    """Raise ServerFailed if the server names another model than `model`, the option of this node.

    Two names of the hub are compared without their owners: copies have the same name. Two folders are compared by the
    bytes of their weights. Any other pair of names, such as a name and a folder, says nothing.
    """
    theirs = served.root
    if is_hub_name(model) and is_hub_name(theirs):
        same = model.rpartition("/")[2].lower() == theirs.rpartition("/")[2].lower()
    else:
        same = _may_hold_the_same(model, Path(theirs))
    if not same:
        raise ServerFailed(
            f"it serves {excerpt(theirs)!r}, which is another model than {excerpt(model)!r}, the one of this node; "
            f"start it with the model of this node"
        )


def _may_hold_the_same(model: str, theirs: Path) -> bool:
    """Return False if both folders can be read here, and their weights differ."""
    try:
        ours = model_folder(model)
        if not theirs.is_absolute() or not theirs.is_dir() or ours.samefile(theirs):
            return True
        mine, other = ({path.name: path for path in folder.glob("*.safetensors")} for folder in (ours, theirs))
        return not other or (
            mine.keys() == other.keys()
            and all(sha256_of(mine[name], "model file") == sha256_of(other[name], "model file") for name in mine)
        )
    except (OSError, LocalError):
        return True


def compared(groups: Sequence[Sequence[Draft]]) -> list[list[Draft]]:
    """Return the longest completion of each prompt and one of the others, drawn at random: a server cannot know which
    will be compared.
    """
    found = []
    for group in groups:
        by_length = sorted(group, key=lambda draft: len(draft.tokens))
        others = random.SystemRandom().sample(by_length[:-1], min(COMPARED, len(group)) - 1)
        found.append([by_length[-1], *others])
    return found


@torch.no_grad()
def differences(policy: Policy, prompts: Sequence[Tokens], groups: Sequence[Sequence[Draft]]) -> Tensor:
    """Return by how many nats the log-probabilities of a server differ from this node's, for each token."""
    rows = [
        Row(
            group="",
            number=0,
            source="local",
            prompt=prompt,
            completion=tuple(draft.tokens),
            advantage=0.0,
            weight=0.0,
            sampled=tuple(draft.logprobs),
        )
        for prompt, group in zip(prompts, groups, strict=True)
        for draft in group
        if draft.tokens
    ]
    found = [torch.zeros(0)]
    for batch in micro_batches(policy, rows):
        own = token_logprobs(completion_logits(policy, batch), batch.targets)
        found.append((own - batch.sampled).abs()[batch.mask.bool()].float().cpu())
    return torch.cat(found)


@contextmanager
def noisy(policy: Policy) -> Iterator[None]:
    """Within this context the adapters hold noise, always the same."""
    held = {name: value.detach().clone() for name, value in policy.trainable()}
    generator = torch.Generator().manual_seed(_GENERATOR_SEED)
    try:
        with torch.no_grad():
            for name, value in policy.trainable():
                if "_B." in name:  # of A times B, the half that is 0 in a new adapter
                    value.copy_(NOISE * torch.randn(value.shape, generator=generator))
        yield
    finally:
        with torch.no_grad():
            for name, value in policy.trainable():
                value.copy_(held[name])
