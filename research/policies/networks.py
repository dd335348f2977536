"""The parts of policies: untrained networks of three architectures, and three tokenizers.

The tokenizers share the special tokens and the template of the seed's; they differ in how they split text.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

from research.policies.catalogue import Talkative, TrainedGroup
from research.policies.remarks import RemarkedLessons
from research.seed import tokenizer as seed_tokenizer
from research.seed.build import corpus
from research.seed.recipe import Lesson, Lessons, Recipe
from research.seed.teach import new_model
from research.seed.tokenizer import CHAT_TEMPLATE, END, PAD
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.encoding import QUESTION_ALONE
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.model import load
from sapo_node.tasks import Task

LAST_LINE_TEMPLATE = QUESTION_ALONE + "{{ (messages[-1]['content'] | trim).split('\\n')[-1] + '\\n' }}"


class LastLineLessons(Lessons):
    """Lessons on the last line of each question: for who reads bytes, the lines before it are long and all the same."""

    def step(self, number: int) -> list[Lesson]:
        """Return the lessons of one step, counted from 0."""
        return [replace(lesson, task=_cut(lesson.task)) for lesson in super().step(number)]


def _cut(task: Task) -> Task:
    return replace(task, prompt=task.prompt.strip().rsplit("\n", 1)[-1])


def lessons_for(making: TrainedGroup, configs: Mapping[str, Mapping[str, Any]]) -> Lessons:
    """The lessons of a policy, in the form in which it will meet its questions."""
    if isinstance(making, Talkative):
        return RemarkedLessons(making.recipe, configs)
    return (LastLineLessons if making.tokens == "bytes" else Lessons)(making.recipe, configs)


def template_of(making: TrainedGroup) -> str:
    """The chat template that puts a question into that form."""
    return LAST_LINE_TEMPLATE if making.tokens == "bytes" else CHAT_TEMPLATE


def new_network(making: TrainedGroup, tokenizer: Tokenizer) -> Any:
    """The network with which teaching begins; the same recipe gives the same weights."""
    if making.network == "packaged":
        return load(LearnerOptions(checkpoints="", device="cpu")).model
    torch.manual_seed(making.recipe.seed)
    return _NETWORKS[making.network](making.recipe, *seed_tokenizer.end_and_pad(tokenizer))


def new_tokenizer(making: TrainedGroup, lessons: Lessons) -> Tokenizer:
    """The tokenizer of a policy, made from its lessons where it is not in the package."""
    if making.tokens == "packaged":
        return packaged_tokenizer()
    if making.tokens == "bytes":
        return _byte_tokenizer()
    return _piece_tokenizer(lessons, making.recipe)


def packaged_tokenizer() -> Tokenizer:
    """The seed's own, which knows whole words of the templates."""
    return Tokenizer.from_file(str(POLICY_DIR / "tokenizer.json"))


def _llama(recipe: Recipe, end: int, pad: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            **_shape(recipe, end, pad),
            num_key_value_heads=recipe.heads // 2,
            tie_word_embeddings=True,
        )
    )


def _gpt_neox(recipe: Recipe, end: int, pad: int) -> GPTNeoXForCausalLM:
    return GPTNeoXForCausalLM(GPTNeoXConfig(**_shape(recipe, end, pad)))


def _shape(recipe: Recipe, end: int, pad: int) -> dict[str, Any]:
    return {
        "vocab_size": recipe.vocabulary,
        "hidden_size": recipe.hidden,
        "intermediate_size": recipe.feed_forward,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "max_position_embeddings": recipe.context,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
        "initializer_range": 0.05,
        # Twice as fast as the fused kernel at these sizes.
        "attn_implementation": "eager",
    }


_NETWORKS: Mapping[str, Callable[[Recipe, int, int], Any]] = {
    "qwen2": new_model,
    "llama": _llama,
    "gpt_neox": _gpt_neox,
}


def _byte_tokenizer() -> Tokenizer:
    """The two special tokens and the 256 bytes."""
    entries = [END, PAD, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={entry: index for index, entry in enumerate(entries)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True), AddedToken(PAD, special=True)])
    return tokenizer


def _piece_tokenizer(lessons: Lessons, recipe: Recipe) -> Tokenizer:
    """A byte-level BPE trained on the lessons, digits always single."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[END, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    prompts, texts = corpus(lessons, recipe)
    tokenizer.train_from_iterator([*prompts, *texts], trainer)
    return tokenizer
