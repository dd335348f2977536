"""Loads the tokenizer of a model folder, and says which of its tokens are special.

Every error of the tokenizers library becomes a ModelError or Unreadable.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from sapo_node.groups.answer import ANSWER_END
from sapo_node.learner.folder import ModelError
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import line_of

THINKING = frozenset({"<think>", "</think>"})
"""Tokens around the thinking of a model. Some tokenizers call them special."""


class Unreadable(LocalError):
    """The tokenizer cannot encode a text; the message says why."""


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


def specials_of(tokenizer: Any) -> frozenset[int]:
    """Return the ids of the special tokens without those of thinking.

    A tokenizer adds tokens that are not special, too: `<think>` of Qwen3 is text that the model must be able to write.
    """
    added = tokenizer.added_tokens_decoder.items()
    special = {token for token, entry in added if entry.special} | set(tokenizer.all_special_ids)
    return frozenset(special - {token for token, entry in added if entry.content in THINKING})


def closing_of(tokenizer: Any) -> frozenset[int]:
    """Return the ids of the tokens with the last character of ANSWER_END, which is the same in every vocabulary."""
    return frozenset(token for text, token in tokenizer.get_vocab().items() if ANSWER_END[-1] in text)


def ends_of(model: Any, tokenizer: Any) -> Iterable[int]:
    """Return the ids that end a text: first that of the tokenizer, then those of the model's generation settings."""
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = configured if isinstance(configured, list) else [configured]
    return dict.fromkeys(end for end in [tokenizer.eos_token_id, *listed] if end is not None)


@contextmanager
def tokenizing() -> Iterator[None]:
    """Turn every error of the tokenizer into Unreadable."""
    try:
        yield
    except Exception as error:  # the tokenizers library raises bare Exception
        raise Unreadable(f"the tokenizer cannot read a text: {line_of(error)}") from error
    except BaseException as error:
        # The library is written in Rust. It may panic, for example if a regular expression takes too long. pyo3 turns
        # a panic into PanicException, a BaseException that cannot be imported. The tokenizer stays usable.
        if type(error).__name__ != "PanicException":
            raise
        raise Unreadable(f"the tokenizer cannot read a text: {line_of(error)}") from error
