"""The untrained network of the seed policy, and its lessons as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from research.seed import tokenizer as own_tokenizer
from research.seed.recipe import Lesson, Recipe

IGNORED = -100
CHUNK = 32
"""Pairs that go through the network together: of like length, and few enough to stay in the cache."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Question-and-text pairs, padded on the right: a causal network never looks at the padding."""

    ids: Tensor
    """(pairs, longest) token ids."""
    targets: Tensor
    """(pairs, longest) the next token where it belongs to a text, IGNORED elsewhere."""


def new_model(recipe: Recipe, end: int, pad: int) -> Qwen2ForCausalLM:
    """Return the freshly initialised network; the caller has seeded torch."""
    config = Qwen2Config(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.feed_forward,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        initializer_range=0.05,
        # Twice as fast as the fused kernel at these sizes.
        attn_implementation="eager",
    )
    return Qwen2ForCausalLM(config)


def chunks(lessons: Sequence[Lesson], tokenizer: Tokenizer) -> list[Chunk]:
    """Lay lessons into padded chunks, those of like length together."""
    end, pad = own_tokenizer.end_and_pad(tokenizer)
    ordered = sorted((_tokens(lesson, tokenizer, end) for lesson in lessons), key=lambda pair: len(pair[0]))
    made = []
    for start in range(0, len(ordered), CHUNK):
        part = ordered[start : start + CHUNK]
        longest = len(part[-1][0])
        ids = torch.full((len(part), longest), pad)
        targets = torch.full((len(part), longest), IGNORED)
        for row, (tokens, given) in enumerate(part):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            targets[row, given - 1 : len(tokens) - 1] = torch.tensor(tokens[given:])
        made.append(Chunk(ids, targets))
    return made


def _tokens(lesson: Lesson, tokenizer: Tokenizer, end: int) -> tuple[list[int], int]:
    """Return a lesson's tokens and how many of them are given; the text is encoded apart, as a node does."""
    prompt = tokenizer.encode(f"{lesson.task.prompt.strip()}\n").ids
    given = tokenizer.encode(lesson.text[: lesson.given]).ids
    trained = tokenizer.encode(lesson.text[lesson.given :]).ids
    return [*prompt, *given, *trained, end], len(prompt) + len(given)
