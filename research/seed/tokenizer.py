"""The seed policy's own tokenizer: whole frequent words, and single bytes for everything else.

Digits are always single, `<answer>` is ordinary text, and the only special tokens are the end and the padding.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from sapo_node.learner.encoding import QUESTION_ALONE

END = "<|end|>"
PAD = "<|pad|>"

_WORDS = r" ?</?answer>|[.,:] | ?[A-Za-z]+|[0-9]|\n+|[^A-Za-z0-9]"
_PHRASE = re.compile(r"[^\d\n:]{12,}[: ]*")
"""A candidate for a phrase of the templates: a long run without digits; frequent ones become one entry each."""
_RARE = 40
"""A piece seen less often than this in the corpus is spelled in bytes: it is somebody's word, not the template's."""

# The template asks for nothing: the tiny policy was only ever shown a bare question and a line break.
CHAT_TEMPLATE = QUESTION_ALONE + "{{ messages[-1]['content'] | trim + '\\n' }}"


def build(prompts: Iterable[str], texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Make a byte-level tokenizer of at most `vocabulary` entries: whole phrases of the prompts, then words."""
    prompts = list(prompts)
    found = (piece for prompt in prompts for piece in _PHRASE.findall(prompt))
    phrases = _frequent(found, len(prompts) // 100)
    pieces = "|".join([*(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True)), _WORDS])
    words = _frequent((piece for text in [*prompts, *texts] for piece in re.findall(pieces, text)), _RARE)
    entries = [END, PAD, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    entries += [_byte_level(word) for word in words if _is_word(word)][: vocabulary - len(entries)]
    model = models.BPE(vocab={entry: index for index, entry in enumerate(entries)}, merges=[], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True), AddedToken(PAD, special=True)])
    return tokenizer


def _frequent(pieces: Iterable[str], least: int) -> list[str]:
    """Return the pieces seen at least `least` times, most frequent first."""
    ranked = sorted(Counter(pieces).items(), key=lambda item: (-item[1], item[0]))
    return [piece for piece, count in ranked if count >= least]


def _is_word(piece: str) -> bool:
    """Tell whether a piece may become an entry; what could be a number in some base stays single letters."""
    return len(piece) > 1 and not re.fullmatch(r" ?[a-f]{1,2}| [A-Za-z]", piece)


def _byte_level(piece: str) -> str:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(piece)[0][0]


def end_and_pad(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids of the two special tokens."""
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    assert end is not None
    assert pad is not None
    return end, pad


def save(tokenizer: Tokenizer, directory: Path, template: str = CHAT_TEMPLATE) -> None:
    """Write tokenizer.json and tokenizer_config.json in the form that transformers reads."""
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
