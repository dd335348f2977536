"""Packs completions of one prompt into one sequence, a lane, so that they share one copy of the prompt's cache.

A token attends to the prompt and to its own completion, and to no other completion of its lane. So the results are
those of each completion alone (as in the tree attention of Miao et al. 2024, "SpecInfer").

Without lanes each completion has a copy of its prompt in the cache. Attention then reads the worked examples of a
prompt once for each completion, which on a CPU takes a third of a round of SmolLM2-135M.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sapo_node.learner.forward import Tokens, attends_to_all, pad_right
from sapo_node.learner.model import Policy

LEAST_PROMPT = 64
"""Tokens of the longest prompt, at least: copies of a shorter one cost less than the masks of lanes."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """B completions of up to T tokens in L lanes of up to S tokens. No lane has the last token of a completion, after
    which nothing is predicted.
    """

    size: int
    """Completions in a lane, at most."""
    prompt_of: Tensor
    """(L,) place of the prompt of each lane."""
    ids: Tensor
    """(L, S) token ids."""
    owner: Tensor
    """(L, S) number of the token's completion in its lane; -1 for padding."""
    steps: Tensor
    """(L, S) number of the token in its completion."""
    places: Tensor
    """(B, T - 1) place of each completion's tokens among all L * S tokens; 0 beyond its end."""


def lane_size(policy: Policy, prompts: Sequence[Tokens], longest: int) -> int:
    """Return how many completions of up to `longest` tokens a lane may hold.

    They have at most as many tokens as the longest prompt: a token computes the attention to its whole lane, and then
    masks the other completions. A model with a window of attention has one completion per lane, because the other
    completions would fill its window. So has one with recurrent layers, whose state has no mask, and one with ALiBi,
    for which the other completions would be distance.
    """
    prompt = max(map(len, prompts))
    return 1 if not attends_to_all(policy) or prompt < LEAST_PROMPT else max(1, prompt // max(1, longest))


def packed(policy: Policy, completions: Sequence[Tokens], prompt_of: Sequence[int], size: int) -> Lanes:
    """Return the completions in lanes of at most `size` completions of one prompt."""
    members: list[list[int]] = []
    newest: dict[int, list[int]] = {}
    for place, prompt in enumerate(prompt_of):
        if prompt not in newest or len(newest[prompt]) == size:
            newest[prompt] = []
            members.append(newest[prompt])
        newest[prompt].append(place)
    length = max(sum(len(completions[place]) - 1 for place in lane) for lane in members)
    if length and not attends_to_all(policy):
        # For a single token some recurrent layers have another kernel, which writes in place.
        length = max(2, length)
    places = torch.zeros(len(completions), max(map(len, completions)) - 1, dtype=torch.long)
    for number, lane in enumerate(members):
        start = number * length
        for place in lane:
            end = start + len(completions[place]) - 1
            places[place, : end - start] = torch.arange(start, end)
            start = end
    ids, _ = pad_right([_joined(lane, completions) for lane in members], policy.pad, policy.device, least=length)
    owner = [[number for number, place in enumerate(lane) for _ in completions[place][1:]] for lane in members]
    steps = [[step for place in lane for step in range(len(completions[place]) - 1)] for lane in members]
    return Lanes(
        size=max(map(len, members)),
        prompt_of=torch.tensor([prompt_of[lane[0]] for lane in members], device=policy.device),
        ids=ids,
        owner=pad_right(owner, -1, policy.device, least=length)[0],
        steps=pad_right(steps, 0, policy.device, least=length)[0],
        places=places.to(policy.device),
    )


def _joined(lane: Sequence[int], completions: Sequence[Tokens]) -> Tokens:
    return tuple(token for place in lane for token in completions[place][:-1])


def lane_mask(policy: Policy, prompts: Tensor, owner: Tensor, *, size: int, asked: int) -> Tensor:
    """Return the attention mask of the last `asked` tokens of each lane.

    `prompts` is the mask of the cached prompts, (L, P), and `owner` the completions of all tokens, (L, S). The mask is
    (L, P + S) if lanes hold one completion, and else (L, 1, asked, P + S), to be added to the scores.
    """
    if size == 1:
        return torch.cat([prompts, (owner >= 0).to(prompts.dtype)], dim=1)
    places = torch.arange(owner.shape[1], device=owner.device)
    seen = (owner[:, -asked:, None] == owner[:, None]) & (places[-asked:, None] >= places)
    seen = torch.cat([prompts.bool()[:, None].expand(-1, asked, -1), seen], dim=2)
    dtype = policy.model.dtype
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)[:, None]
