"""Settings of a model folder: none is taken that chooses code, and one error of ours says why another is not."""

import functools
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Source, refusal_is_a_line

from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.learner.folder import BUILT_IN, POLICY_DIR, ModelError, require_plain

_TEMPORARY = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
INDEX, PART = "model.safetensors.index.json", re.compile(r"[^/\\]+\.safetensors")
FILES = (
    *("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", INDEX),
)
KEYS = (
    *("model_type", "vocab_size", "num_hidden_layers", "text_config", "weight_map", "auto_map", "attn_implementation"),
    *("_attn_implementation", "_attn_implementation_internal", "experts_implementation", "quantization_config"),
    *("kernel_config", "custom_generate", "fast_tokenizer_files", "transformers_weights", "x", "dtype"),
)
VALUES = (None, True, False, 0, 1, -1, 2**31, 2**63, 0.5, "", "sdpa", "evil/repo", "x.bin", "../x.safetensors", [], {})


@functools.cache
def folder() -> Path:
    copied: Path = shutil.copytree(POLICY_DIR, Path(_TEMPORARY.name) / "model")
    return copied


def fuzz(data: bytes) -> None:
    source = Source(data)
    path = folder() / FILES[source.below(len(FILES))]
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(source.rest() if source.number() & 1 else json.dumps(tree(source)).encode())
    try:
        with refusal_is_a_line(ModelError):
            require_plain(folder())
            recipe_of(Config(model=str(folder())))
            settings = json.loads(path.read_bytes())
            assert not chooses_code(settings)
            assert path.name != INDEX or all(map(PART.fullmatch, settings["weight_map"].values()))
    finally:
        path.unlink()
        if before is not None:
            path.write_bytes(before)


def tree(source: Source, depth: int = 0) -> Any:
    """JSON of keys that matter, to any depth."""
    choice = source.below(8)
    if choice < 4 and depth < 80:
        return {KEYS[source.below(len(KEYS))]: tree(source, depth + 1) for _ in range(source.below(4))}
    if choice == 4 and depth < 80:
        return [tree(source, depth + 1) for _ in range(source.below(4))]
    if choice == 5:
        return source.string().decode("latin-1")
    return VALUES[source.below(len(VALUES))]


def chooses_code(value: Any) -> bool:
    """Whether a name is given where transformers takes the name of code."""
    if isinstance(value, list):
        return any(map(chooses_code, value))
    if not isinstance(value, dict):
        return False
    for key, each in value.items():
        if "attn_implementation" in key and isinstance(each, str) and each not in BUILT_IN:
            return True
        if key in {"auto_map", "quantization_config", "custom_generate", "kernel_config"} and each:
            return True
    return any(map(chooses_code, value.values()))


def seeds() -> Iterator[bytes]:
    for number, name in enumerate(FILES):
        if (POLICY_DIR / name).exists():
            yield bytes([number, 1]) + (POLICY_DIR / name).read_bytes()
    for number, _ in enumerate(KEYS):
        for value in (10, 11, 12, 13):
            yield bytes([number % len(FILES), 0, 0, 1, number, 7, value])
    yield b"\5\1" + json.dumps({"weight_map": {"a": "evil.bin"}}).encode()
    yield b"\0\1" + b'{"a":' * 70 + b"1" + b"}" * 70
