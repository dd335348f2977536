"""Loads the tokenizer of a model folder, and says which of its tokens end an answer or a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from sapo_node.groups.answer import ANSWER_END
from sapo_node.learner.encoding import answer_end_first
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


def ends_of(model: Any, tokenizer: Any) -> Sequence[int]:
    """Return the ids that end a completion: first those that end an answer in the chat template, then that of the
    tokenizer, then those of the model's generation settings.
    """
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = configured if isinstance(configured, list) else [configured]
    return answer_end_first([end for end in [tokenizer.eos_token_id, *listed] if end is not None], tokenizer)
