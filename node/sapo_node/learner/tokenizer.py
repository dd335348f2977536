"""Loads the tokenizer of a model folder, and says which of its tokens end an answer or a text."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from sapo_node.groups.answer import ANSWER_END
from sapo_node.groups.prompt import Example, Prompt, chat
from sapo_node.learner.encoding import TemplateFailed, Unreadable, prompt_tokens
from sapo_node.learner.folder import ModelError
from sapo_protocol.printable import line_of


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a folder. Raises ModelError."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelError(f"{folder} has no tokenizer.json; save the model's fast tokenizer beside its weights")
    try:
        # AutoTokenizer would build the tokenizer of the model family instead of using the file unchanged. This names
        # the file, because the settings of the folder could name another one.
        return PreTrainedTokenizerFast.from_pretrained(folder, tokenizer_file=str(file), local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception for a broken file
        raise ModelError(f"the tokenizer of {folder} is broken: {line_of(error)}") from error


def closing_of(tokenizer: Any) -> frozenset[int]:
    """Return the ids of the tokens with the last character of ANSWER_END, which is the same in every vocabulary."""
    return frozenset(token for text, token in tokenizer.get_vocab().items() if ANSWER_END[-1] in text)


def ends_of(model: Any, tokenizer: Any) -> Iterable[int]:
    """Return the ids that end a text: first that which ends an answer in the chat template, then that of the tokenizer,
    then those of the model's generation settings. Gemma 3 and Phi end a turn with another token than a text.
    """
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = configured if isinstance(configured, list) else [configured]
    ends = dict.fromkeys(end for end in [tokenizer.eos_token_id, *listed] if end is not None)
    return dict.fromkeys([*_end_of_answer(tokenizer, ends), *ends])


def _end_of_answer(tokenizer: Any, ends: Collection[int]) -> list[int]:
    """Return the first of the ends behind a worked example in a prompt, if the chat template writes one."""
    if not tokenizer.chat_template:
        return []
    try:
        with_turn, without = (
            prompt_tokens(chat(Prompt("?", examples)), tokenizer, ends=ends) for examples in ((Example("?", "!"),), ())
        )
    except (TemplateFailed, Unreadable):
        return []
    # The ends of the turns before the answer are in both prompts; the next one is that of the answer.
    added = [token for token in with_turn if token in ends]
    kept = [token for token in without if token in ends]
    return added[len(kept) :][:1]
