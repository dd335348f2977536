"""Makes the tokenizer of a GGUF file, in the format of the tokenizers library.

The file names how its tokenizer splits a text before it applies merges. A wrong split gives other tokens and no error.
So this refuses a way of splitting that it does not know.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from sapo_node.learner.gguf.reader import GgufError, Header

_TOKENS, _TYPES, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"
_CONTROL, _USER_DEFINED = 3, 4
"""Types of tokens that are found in a text before it is split: special ones, and ordinary ones."""
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _bytes_after(*before: Any, use_regex: bool) -> Any:
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return pre_tokenizers.Sequence([*before, last])


def _split(digits: str) -> Any:
    pattern = Regex(f"{_CONTRACTIONS}|{_WORDS}|{digits}|{_REST}")
    return _bytes_after(pre_tokenizers.Split(pattern, "isolated"), use_regex=False)


_SPLITS: Mapping[str, Callable[[], Any]] = {
    "gpt-2": lambda: _bytes_after(use_regex=True),
    "smollm": lambda: _bytes_after(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
    "llama-bpe": lambda: _split(r"\p{N}{1,3}"),
    "qwen2": lambda: _split(r"\p{N}"),
}
"""How a text is split, by the name in `tokenizer.ggml.pre`."""


def make_tokenizer(header: Header) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer and the contents of its tokenizer_config.json. Raises GgufError."""
    kind, split = (header.get(f"tokenizer.ggml.{name}", str) for name in ("model", "pre"))
    if kind != "gpt2" or split not in _SPLITS:
        raise GgufError(
            f"its tokenizer is of the kind {kind!r} with the split {split!r}; the node knows the kind 'gpt2' with "
            f"{', '.join(_SPLITS)}"
        )
    tokens = _texts(header, _TOKENS)
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in _texts(header, _MERGES))]
    types = header.require(_TYPES, list)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if not len(vocabulary) == len(tokens) == len(types):
        raise GgufError(
            f"it has {len(tokens)} tokens, {len(vocabulary)} different ones, and {len(types)} types of tokens"
        )
    try:
        # Llama 3 takes a word that is a token as it is, whatever the merges would make of it.
        whole = split == "llama-bpe"
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole))
    except Exception as error:  # the library raises bare Exception
        raise GgufError("its merges do not fit its tokens") from error
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _SPLITS[split]()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken(token, special=its_type == _CONTROL, normalized=False)
            for token, its_type in zip(tokens, types, strict=True)
            if its_type in {_CONTROL, _USER_DEFINED}
        ]
    )
    named = {f"{name}_token": token for name, token in _named(header, tokens)}
    tokenizer.post_processor = _post_processor(header, tokenizer, named.get("bos_token"))
    return tokenizer, {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **named}


def _texts(header: Header, key: str) -> list[str]:
    found: list[str] = header.require(key, list)
    if not all(isinstance(each, str) for each in found):
        raise GgufError(f"the metadata {key} holds something that is no text")
    return found


def _named(header: Header, tokens: list[str]) -> Any:
    """Yield the name and the text of each special token that the file names."""
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = header.get(f"tokenizer.ggml.{key}_token_id", int)
        if index is not None:
            if not 0 <= index < len(tokens):
                raise GgufError(f"its {key} token is {index}, and it has {len(tokens)} tokens")
            yield name, tokens[index]


def _post_processor(header: Header, tokenizer: Tokenizer, bos: str | None) -> Any:
    """Return what adds the first token of a text, if the file asks for one.

    Of the splits above, llama.cpp adds it by itself to that of Llama 3 alone. The file may forbid that.
    """
    plain = processors.ByteLevel(trim_offsets=False)
    is_llama_3 = header.get("tokenizer.ggml.pre", str) == "llama-bpe"
    if not header.get("tokenizer.ggml.add_bos_token", bool, is_llama_3) or bos is None:
        return plain
    first = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    return processors.Sequence([plain, first])
