"""Finds the folder of a model, and refuses a folder whose settings choose code or are not plain JSON.

A model folder is untrusted data. transformers lets its settings name code to run: a kernel of the hub, a quantizer, a
module in the folder, another settings file. This module reads the settings before transformers does, and refuses such
names. It does not import torch.
"""

import functools
import hashlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sapo_node.groups.messages import is_gguf, is_hub_name
from sapo_node.learner.catalogue import CATALOGUE, place_of
from sapo_node.learner.hub import cached
from sapo_protocol.errors import LocalError
from sapo_protocol.files import NoSuchFile, read_json, sha256_of, size_of
from sapo_protocol.printable import line_of

POLICY_DIR = Path(__file__).parent / "seed_policy"
"""Folder of the seed policy: a small model of the Hugging Face format, built by `research.seed`."""
MAX_TOKENIZER_BYTES = 64 * 2**20
"""Bytes of tokenizer.json, at most. The largest in wide use, that of Gemma, has 33 MB."""
MAX_SETTINGS_BYTES = 16 * 2**20
"""Bytes of any other settings file, at most. The largest in wide use, an index of weights, has 9 MB."""
MAX_GGUF_BYTES = 64 * 2**30
"""Bytes of a GGUF file, at most. A quantised model with 70 B parameters has 40 GB."""
MAX_PART_BYTES = 2**40
"""Bytes of a file of weights, at most."""
MAX_DEPTH = 64
"""Nesting depth of objects and lists in a settings file, at most."""
MAX_NUMBER = 2**31
"""Absolute value of an integer in config.json, at most. Real models have smaller sizes."""

_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_TEMPLATE = "chat_template.jinja"
_WEIGHTS = "model.safetensors"
_INDEX = f"{_WEIGHTS}.index.json"
_PART = re.compile(r"[\w.-]+\.safetensors", re.ASCII)
"""Name of a file of weights. transformers unpickles a part with another ending."""
TOKENIZER_FILES = (_TOKENIZER, _TEMPLATE, "special_tokens_map.json", "added_tokens.json")
"""The files of a tokenizer, without tokenizer_config.json."""
_SETTINGS = (
    _CONFIG,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    _INDEX,
)
BUILT_IN = (None, "eager", "sdpa", "batched_mm", "grouped_mm")
"""Implementations of attention and of experts that transformers and torch contain."""
_CHOOSES_CODE = frozenset(
    {
        "allow_all_kernels",
        "attribute_map",  # gives another key the meaning of one of these
        "auto_map",
        "compression_config",
        "configuration_files",  # has transformers read another file instead of config.json
        "custom_generate",
        "custom_pipelines",
        "fast_tokenizer_files",  # the same for tokenizer.json
        "fusion_config",
        "gguf_file",
        "hub_kernels",
        "kernel_config",
        "quantization_config",
        "transformers_weights",  # the same for the weights
        "trust_remote_code",
        "use_kernels",
    }
)
_FOREIGN_PARTS = {
    "adapter_config.json": "merge the adapter into its model, and give the merged folder",
    "custom_generate": "remove it from a copy of the folder, because the node has its own sampling",
}


class ModelError(LocalError):
    """The model folder cannot be used. A restart does not help."""


def model_folder(model: str) -> Path:
    """Return the folder that `model` names. Raises ModelError if there is none, or if its settings are refused."""
    if model == "seed":
        return POLICY_DIR
    folder = _folder(model)
    require_plain(folder)
    return folder


def fingerprint(folder: Path, lora: int, lora_layers: int) -> str:
    """Return the SHA-256 over the model's files and what the adapters are: a checkpoint fits if it has the same."""
    layers = f",layers={lora_layers}" if lora and lora_layers else ""
    total = hashlib.sha256(f"lora={lora}{layers}".encode())
    for path in sorted([folder / "config.json", folder / "tokenizer.json", *folder.glob("*.safetensors")]):
        if path.is_file():
            total.update(path.name.encode() + sha256_of(path, "file of a model"))
    return total.hexdigest()


def _folder(model: str) -> Path:
    """Return the folder that `model` names. Raises ModelError if there is none."""
    folder: Path | None
    if model in CATALOGUE:
        folder, remedy = place_of(model), f"{model} is not on this machine; `sapo-node model fetch {model}` gets it"
    elif is_gguf(model):
        folder = gguf_folder(Path(model))
        remedy = f"{model} has not been converted yet; `sapo-node start --model {model}` converts it"
    elif is_hub_name(model):
        folder = cached(model)
        remedy = (
            f"{model} is not a folder, and the cache of the Hugging Face hub lacks it; "
            f"`sapo-node start --model {model}` downloads it"
        )
    else:
        # The hub once had names without an owner, which a cache may still hold.
        folder = Path(model) if Path(model).is_dir() else cached(model)
        remedy = (
            f"there is no folder {model}; give a Hugging Face model folder, a GGUF file, "
            f"{', '.join(['seed', *CATALOGUE])}, or a hub name with its owner, for example openai-community/gpt2"
        )
    if folder is None or not folder.is_dir():
        raise ModelError(remedy)
    return folder


def gguf_folder(file: Path) -> Path:
    """Return the folder in the cache for the model of a GGUF file. It may not exist. Raises ModelError."""
    if not _require_size(file, MAX_GGUF_BYTES):
        raise ModelError(f"there is no file {file}; give a Hugging Face model folder or a GGUF file")
    try:
        found = file.stat()
        return place_of(f"gguf-{_digest(file, found.st_ino, found.st_size, found.st_mtime_ns)}")
    except (LocalError, OSError) as error:
        raise ModelError(f"cannot read {file}: {error}") from error


@functools.lru_cache(maxsize=16)
def _digest(file: Path, *version: int) -> str:
    """Return the SHA-256 of a file in hexadecimal. `version` makes a changed file another key of the cache."""
    del version
    return sha256_of(file, "GGUF file").hex()


def require_new_folder(output: Path) -> None:
    """Raises LocalError if `output` exists, or if its parent is not a folder."""
    if output.exists():
        raise LocalError(f"{output} exists; name a new folder")
    if not output.parent.is_dir():
        raise LocalError(f"{output.parent} is not a folder; make it first, or name another place")


def require_plain(folder: Path) -> None:
    """Raises ModelError if a settings file is too large, is not plain JSON, or holds a key that chooses code."""
    for name, remedy in _FOREIGN_PARTS.items():
        if (folder / name).exists():
            raise ModelError(f"{folder} has {name}, which chooses code; {remedy}")
    _require_size(folder / _TOKENIZER, MAX_TOKENIZER_BYTES)
    _require_size(folder / _TEMPLATE, MAX_SETTINGS_BYTES)
    for name in _SETTINGS:
        if _require_size(folder / name, MAX_SETTINGS_BYTES):
            _require_harmless(folder / name)
    if (folder / _INDEX).exists():
        _require_parts(folder / _INDEX)
    _require_size(folder / _WEIGHTS, MAX_PART_BYTES)


def parameters_of(folder: Path) -> int:
    """Return how many parameters the files hold that transformers loads, and 0 if there is no such file. This reads no
    weight. Raises ModelError if a file is missing or broken.
    """
    return sum(map(_parameters_in, weight_files(folder)))


def weight_files(folder: Path) -> set[Path]:
    """Return the files of weights that transformers loads. There are none if the folder has another format."""
    if (folder / _WEIGHTS).exists():
        return {folder / _WEIGHTS}
    if (folder / _INDEX).exists():
        return {folder / part for part in _parsed(folder / _INDEX)["weight_map"].values()}
    return set()


def _parameters_in(path: Path) -> int:
    try:
        with safe_open(path, "np") as weights:  # "pt" would import torch
            return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.offset_keys())
    except (OSError, SafetensorError) as error:
        raise ModelError(f"the weights in {path} are corrupt ({line_of(error)}); copy them again") from error


def _require_size(path: Path, limit: int) -> bool:
    """Return whether the file exists. Raises ModelError if it is not a regular file, or is larger than the limit."""
    try:
        size = size_of(path, "file of a model")
    except NoSuchFile:
        return False
    except LocalError as error:
        raise ModelError(str(error)) from error
    if size > limit:
        raise ModelError(f"{path} has {size} bytes, over the limit of {limit}; give another model")
    return True


def _require_harmless(path: Path) -> None:
    for key, value in _entries(path, _parsed(path)):
        # The implementation of a cache is a class of transformers by its name.
        implementation = key.removesuffix("_internal").endswith("_implementation") and key != "cache_implementation"
        if (implementation and value not in BUILT_IN) or (key in _CHOOSES_CODE and value):
            raise ModelError(
                f"{path} has the key {key}, which chooses code; remove the key from a copy of the folder, or give "
                "another model"
            )
        if path.name == _CONFIG and isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise ModelError(f"{path} gives {key} a number beyond {MAX_NUMBER}; give another model")


def _require_parts(path: Path) -> None:
    """Raises ModelError if an index of weights names anything but safetensors, in regular files of its own folder."""
    named = _parsed(path).get("weight_map")
    parts = list(named.values()) if isinstance(named, dict) else [named]
    for part in parts:
        if not isinstance(part, str) or not _PART.fullmatch(part):
            raise ModelError(f"{path} names {part!r} as weights, which is no safetensors file; give another model")
    for part in {str(part) for part in parts}:
        _require_size(path.parent / part, MAX_PART_BYTES)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, MAX_SETTINGS_BYTES, "settings file of a model")
    except LocalError as error:
        raise ModelError(str(error)) from error


def _entries(path: Path, value: Any, *, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every value at any depth with its key. An item of a list has the key of the list."""
    if depth > MAX_DEPTH:
        raise ModelError(f"{path} nests more than {MAX_DEPTH} deep; give another model")
    yield key, value
    within = (
        value.items() if isinstance(value, dict) else ((key, each) for each in value) if isinstance(value, list) else ()
    )
    for name, each in within:
        yield from _entries(path, each, key=name, depth=depth + 1)
