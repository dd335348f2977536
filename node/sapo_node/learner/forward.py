"""Runs the model on prompts and their completions. It reads each prompt once for all of its completions.

Prompts of one task often begin alike: system prompt and worked examples. The model reads such a beginning, the stem,
once for all prompts that share it. Attention makes this exact: keys and values of a token depend only on the tokens
before it.

The completions of one prompt share a copy of the prompt's cache: they are packed into one sequence, a lane. A token
attends to the prompt and to its own completion, and to no other completion of its lane. So the results are those of
each completion alone (as in the tree attention of Miao et al. 2024, "SpecInfer"). If each completion had a copy of its
prompt in the cache, attention would read the worked examples of a prompt once for each completion. On a CPU that takes
a third of a round of SmolLM2-135M.

A recurrent layer sums up all tokens before in a state of fixed size: the gated delta net of Qwen3.5, the Mamba-2 of
Granite 4, the short convolution of LFM2. The state after a prompt is copied for each completion of the prompt.

This works on token ids and tensors. It knows neither text nor rewards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionAndFullAttentionLayer, LinearAttentionLayer

from sapo_node.learner.model import Policy

Tokens: TypeAlias = tuple[int, ...]

IMPOSSIBLE = -1e9
"""Logit of a token that no completion may hold. Padding may be such a token, and must have a finite log-probability."""
ROOM = 32
"""Tokens for which the cache of sampling gets room at a time."""
SPARED = 64
"""Most tokens of padding of prompts that the model reads together. More padding costs more than another call."""
LEAST_STEM = 16
"""Fewest tokens of a stem. A shorter one costs less to read again than another call of the model."""

LEAST_PROMPT = 64
"""Fewest tokens of the longest prompt. Copies of a shorter one cost less than the masks of lanes."""

ALIBI = frozenset({"bloom", "mpt"})
"""Model types that always have ALiBi: biases by distance instead of positions."""


def read_prompts(
    policy: Policy, prompts: Sequence[Tokens], stems: Mapping[Tokens, int]
) -> tuple[Tensor, DynamicCache, Tensor]:
    """Return the logits after each prompt, (Q, V), the cache, and the mask of the cached tokens, (Q, P).

    `stems` gives the number of tokens of each prompt's stem, as `stems_of` does; a prompt without an entry has none.
    """
    if not any(prompt in stems for prompt in prompts):
        return _read(policy, prompts)
    stem_of = [prompt[: beginning_of(prompt, stems)] for prompt in prompts]
    places = {stem: place for place, stem in enumerate(dict.fromkeys(stem_of))}
    _, cache, mask = _read(policy, list(places))
    rest = [prompt[len(stem) :] for prompt, stem in zip(prompts, stem_of, strict=True)]
    return _read(policy, rest, _Stems(cache, mask, [places[stem] for stem in stem_of]))


def beginning_of(prompt: Tokens, stems: Mapping[Tokens, int]) -> int:
    """Return the number of tokens of a prompt that the model reads first, if some prompts have a stem: those of its
    stem. Without a stem it is all but one, so that the rest of this prompt does not pad the rest of the others.
    """
    return stems.get(prompt, len(prompt) - 1)


@dataclass(frozen=True, slots=True)
class _Stems:
    """The stems that were read, and the place of each row's stem."""

    cache: DynamicCache
    mask: Tensor
    of: Sequence[int]

    def before(self, rows: Sequence[int], config: Any) -> tuple[DynamicCache, Tensor]:
        """Return the cache and the mask of the stems of some rows."""
        chosen = torch.tensor([self.of[row] for row in rows], device=self.mask.device)
        cache = new_cache(config)
        for number, layer in enumerate(self.cache.layers):
            cache.update(layer.keys[chosen], layer.values[chosen], number)
        return cache, self.mask[chosen]


def _read(policy: Policy, rows: Sequence[Tokens], stems: _Stems | None = None) -> tuple[Tensor, DynamicCache, Tensor]:
    """Return the logits after each row, (Q, V), the cache, and its mask, (Q, P). Reads rows of like length together."""
    batches = alike(rows) if attends_to_all(policy) else [list(range(len(rows)))]
    parts = [_read_padded(policy, rows, batch, stems) for batch in batches]
    if len(parts) == 1:
        return parts[0]
    longest = max(mask.shape[1] for _, _, mask in parts)
    back = torch.tensor([place for batch in batches for place in batch], device=policy.device).argsort()
    cache = new_cache(policy.model.config)
    for number in range(len(parts[0][1].layers)):
        layers = [part.layers.pop(0) for _, part, _ in parts]  # so that its memory is free after this turn
        keys, values = (
            torch.cat([_longer(states, longest, dim=2) for states in kind])
            for kind in ([layer.keys for layer in layers], [layer.values for layer in layers])
        )
        cache.update(keys[back], values[back], number)
    mask = torch.cat([_longer(mask, longest, dim=1) for _, _, mask in parts])
    return torch.cat([logits for logits, _, _ in parts])[back], cache, mask[back]


def _read_padded(
    policy: Policy, rows: Sequence[Tokens], batch: Sequence[int], stems: _Stems | None
) -> tuple[Tensor, DynamicCache, Tensor]:
    ids, mask = pad_left([rows[place] for place in batch], policy.pad, policy.device)
    cache = new_cache(policy.model.config)
    if stems:
        cache, before = stems.before(batch, policy.model.config)
        mask = torch.cat([before, mask], dim=1)
    positions = positions_of(mask)[:, -ids.shape[1] :]
    return run(policy, ids, mask, positions, cache, keep=1)[:, -1], cache, mask


def alike(rows: Sequence[Tokens]) -> list[list[int]]:
    """Return the places of the rows in batches, none with more than SPARED tokens of padding."""
    batches: list[list[int]] = []
    padding = 0
    for place in sorted(range(len(rows)), key=lambda place: len(rows[place]), reverse=True):
        padding += len(rows[batches[-1][0]]) - len(rows[place]) if batches else 0
        if not batches or padding > SPARED:
            batches.append([])
            padding = 0
        batches[-1].append(place)
    return [sorted(batch) for batch in batches]


def _longer(states: Tensor, length: int, *, dim: int) -> Tensor:
    """Return the states padded with zeros on the left, where the mask hides them."""
    shape = list(states.shape)
    shape[dim] = length - shape[dim]
    return torch.cat([states.new_zeros(shape), states], dim=dim)


class _StateLayer(LinearAttentionLayer):  # type: ignore[misc]
    """The states of one recurrent layer, by their number in it.

    transformers overwrites a state in place. Autograd needs the old state for the gradient of the prompt, and gradient
    checkpointing needs it to compute a layer again. So this puts a new state in the place of the old one.
    """

    conv_states: dict[int, Tensor]
    recurrent_states: dict[int, Tensor]
    has_previous_state: dict[int, bool]
    is_conv_states_initialized: dict[int, bool]
    is_recurrent_states_initialized: dict[int, bool]
    device: torch.device | None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # So the model calls update_conv_state for single tokens as well, and no kernel that writes in place.
        self.record_past = True

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **_: Any
    ) -> Tensor:
        """Append the inputs of a convolution. Return those that it needs for the new tokens."""
        if self.has_previous_state[state_idx]:
            conv_states = torch.cat([self.conv_states[state_idx], conv_states], dim=-1)
        size = conv_kernel_size or conv_states.shape[-1]
        last = pad(conv_states, (max(0, size - conv_states.shape[-1]), 0))[..., -size:]
        self.conv_states = {**self.conv_states, state_idx: last}
        self.is_conv_states_initialized = {**self.is_conv_states_initialized, state_idx: True}
        self.has_previous_state = {**self.has_previous_state, state_idx: True}
        self.device = last.device
        return conv_states

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **_: Any) -> Tensor:
        """Take the state after the new tokens."""
        self.recurrent_states = {**self.recurrent_states, state_idx: recurrent_states}
        self.is_recurrent_states_initialized = {**self.is_recurrent_states_initialized, state_idx: True}
        return recurrent_states


class _MixedLayer(_StateLayer, LinearAttentionAndFullAttentionLayer):  # type: ignore[misc]
    """The states, keys and values of a layer that is recurrent and attends."""


_REPLACED = {LinearAttentionLayer: _StateLayer, LinearAttentionAndFullAttentionLayer: _MixedLayer}


def new_cache(config: Any) -> DynamicCache:
    """Return an empty cache for a model of these settings."""
    cache = DynamicCache(config=config)
    for place, layer in enumerate(cache.layers):
        if type(layer) in _REPLACED:
            cache.layers[place] = _REPLACED[type(layer)](number_of_states=layer.number_of_states)
    return cache


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Holds keys and values in memory with room for more tokens. So a new token is written, and no old one is copied.

    Only for sampling: it writes in place, and autograd could not undo that.
    """

    keys: Tensor
    values: Tensor
    room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append the states of T tokens, (B, heads, T, size). Return those of all tokens."""
        length = self.keys.shape[-2]
        if self.room is None or not self._fits(self.room[0], length + key_states.shape[-2]):
            self.room = (with_room(self.keys, ROOM), with_room(self.values, ROOM))
        for held, states in zip(self.room, (key_states, value_states), strict=True):
            held[..., length : length + states.shape[-2], :] = states
        self.keys, self.values = (held[..., : length + key_states.shape[-2], :] for held in self.room)
        return self.keys, self.values

    def _fits(self, room: Tensor, length: int) -> bool:
        """Return whether the room holds these keys, and has `length` tokens: a selection of rows has other memory."""
        return room.data_ptr() == self.keys.data_ptr() and room.shape[-2] >= length


def with_room(states: Tensor, tokens: int) -> Tensor:
    """Return keys or values, (..., T, size), with room for more tokens behind them.

    The room holds zeros: a token that attends to it with weight 0 must not meet an infinite value.
    """
    return torch.cat([states, states.new_zeros(*states.shape[:-2], tokens, states.shape[-1])], dim=-2)


def make_room(cache: DynamicCache) -> None:
    """Prepare a filled cache for sampling one token after the other. Layers of other kinds stay as they are."""
    for place, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            roomy = _RoomyLayer()
            roomy.__dict__.update(vars(layer))
            cache.layers[place] = roomy


def run(policy: Policy, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache, *, keep: int) -> Tensor:
    """Return the logits at the last `keep` of the T tokens, (B, keep, V). Append all T tokens to the cache.

    `ids` and `positions` are (B, T). `mask` covers the tokens in the cache, too: (B, cached + T), or any attention as
    (B, 1, T, cached + T). Tokens that no completion may hold have probability 0: sampling and training use the same
    distribution.
    """
    output = policy.model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        # A number would cut a view, which the last matrix product of some models copies the weights for.
        logits_to_keep=torch.arange(ids.shape[1] - keep, ids.shape[1], device=ids.device),
    )
    logits: Tensor = output.logits
    # In place: the logits take more memory than all else in a step.
    return logits.index_fill_(-1, policy.forbidden, IMPOSSIBLE)


def stems_of(policy: Policy, prompts: Sequence[Tokens]) -> dict[Tokens, int]:
    """Return the number of tokens of the stem of each prompt that shares one.

    A stem has at least LEAST_STEM tokens, and at least half of each prompt that has it. A model with a window of
    attention has no stems: padding after a stem would count as tokens in its window. Nor has one with recurrent layers,
    whose state the padding would change, or with ALiBi, which would count the padding as distance.
    """
    if not attends_to_all(policy):
        return {}
    found: dict[Tokens, int] = {}
    cluster: list[Tokens] = []
    stem: Tokens = ()
    for prompt in sorted(set(prompts)):
        # The last token of a prompt is no part of a stem: the model must read something to give the next logits.
        common = _common(stem, prompt[:-1])
        if cluster and 2 * len(common) >= len(prompt) and len(common) >= LEAST_STEM:
            cluster.append(prompt)
            stem = common
            found |= dict.fromkeys(cluster, len(stem))
        else:
            cluster, stem = [prompt], prompt[:-1]
    return found


def attends_to_all(policy: Policy) -> bool:
    """Return whether each layer attends to all tokens before, wherever they are in the cache: none has a window, none
    is recurrent, and none has ALiBi, which takes the distance of two tokens from their places.
    """
    config = policy.model.config.get_text_config()
    if config.model_type in ALIBI or getattr(config, "alibi", False):
        return False
    if "local" in getattr(config, "attention_layers", ()):  # of GPT-Neo
        return False
    layers = getattr(config, "layer_types", None)
    return set(layers) == {"full_attention"} if layers else getattr(config, "sliding_window", None) is None


def _common(left: Tokens, right: Tokens) -> Tokens:
    """Return the longest common beginning."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    return tuple(token for token, _ in alike)


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids and mask, both (rows, longest), padded on the left."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask


def pad_right(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device, *, least: int = 0
) -> tuple[Tensor, Tensor]:
    """Return ids and mask, both (rows, longest or `least`), padded on the right."""
    longest = max(least, *(len(row) for row in rows))
    ids = torch.tensor([list(row) + [pad] * (longest - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)
    return ids, mask


def positions_of(mask: Tensor) -> Tensor:
    """Return each token's position in its own sequence. Padding on the left has position 0."""
    return (mask.cumsum(1) - 1).clamp(min=0)


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
