"""Finds the folder of a model, and refuses a folder whose settings choose code or are no plain JSON. No torch here.

A model folder is foreign data. transformers lets its settings name code to run: a kernel of the hub, a quantizer, a
module of its own, another settings file. This module reads the settings before any library does, and refuses those.
"""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from sapo_node.groups.messages import is_hub_name
from sapo_node.learner.hub import cached
from sapo_protocol.errors import LocalError

POLICY_DIR = Path(__file__).parent / "seed_policy"
"""Folder of the seed policy: a small model of the Hugging Face format, built by `sapo_adversary.seed`."""
MAX_TOKENIZER_BYTES = 64 * 2**20
"""Size limit of tokenizer.json. The largest in wide use, Gemma's, has 33 MB."""
MAX_SETTINGS_BYTES = 16 * 2**20
"""Size limit of every other settings file. The largest in wide use is an index of weights of 9 MB."""
MAX_DEPTH = 64
"""Objects and lists within one another in a settings file, at most."""
MAX_NUMBER = 2**31
"""Largest integer in config.json: beyond any size of a real model."""

_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_TEMPLATE = "chat_template.jinja"
TOKENIZER_FILES = (_TOKENIZER, _TEMPLATE, "special_tokens_map.json", "added_tokens.json")
"""What makes a tokenizer, beside tokenizer_config.json."""
_SETTINGS = (
    _CONFIG,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "model.safetensors.index.json",
)
BUILT_IN = (None, "eager", "sdpa", "batched_mm", "grouped_mm")
"""Implementations of attention and of experts that are part of transformers and torch."""
_CHOOSES_CODE = frozenset(
    {
        "allow_all_kernels",
        "attribute_map",  # gives another key the meaning of one of these
        "auto_map",
        "compression_config",
        "configuration_files",  # has transformers read another file in place of config.json
        "custom_generate",
        "custom_pipelines",
        "fast_tokenizer_files",  # the same, of tokenizer.json
        "fusion_config",
        "gguf_file",
        "hub_kernels",
        "kernel_config",
        "quantization_config",
        "transformers_weights",  # the same, of the weights
        "trust_remote_code",
        "use_kernels",
    }
)
_FOREIGN_PARTS = {
    "adapter_config.json": "merge the adapter into its model, and give the merged folder",
    "custom_generate": "remove it from a copy of the folder: the node has its own sampling",
}


class ModelError(LocalError):
    """The model folder cannot be used. No restart helps."""


def model_folder(model: str) -> Path:
    """Return the folder that `model` names. Raises ModelError where it is missing or its settings are refused."""
    if model == "seed":
        return POLICY_DIR
    folder = Path(model) if Path(model).is_dir() else cached(model)
    if folder is not None:
        require_plain(folder)
        return folder
    if is_hub_name(model):
        raise ModelError(
            f"{model} is no folder, and the cache of the Hugging Face hub lacks it; "
            f"`sapo-node start --model {model}` downloads it"
        )
    raise ModelError(
        f"there is no folder {model}; give a Hugging Face model folder, `seed`, or a hub name with its owner, such as "
        "openai-community/gpt2"
    )


def require_new_folder(output: Path) -> None:
    """Raises LocalError where a new folder cannot be made at `output`."""
    if output.exists():
        raise LocalError(f"{output} is there already; name a folder that is not")
    if not output.parent.is_dir():
        raise LocalError(f"{output.parent} is no folder; make it first, or name another place")


def require_plain(folder: Path) -> None:
    """Raises ModelError where a settings file is too large, is no plain JSON, or holds a key that chooses code."""
    for name, remedy in _FOREIGN_PARTS.items():
        if (folder / name).exists():
            raise ModelError(f"{folder} has {name}, which chooses code; {remedy}")
    _require_size(folder / _TOKENIZER, MAX_TOKENIZER_BYTES)
    _require_size(folder / _TEMPLATE, MAX_SETTINGS_BYTES)
    for name in _SETTINGS:
        if _require_size(folder / name, MAX_SETTINGS_BYTES):
            _require_harmless(folder / name)


def _require_size(path: Path, limit: int) -> bool:
    """Return whether the file is there. Raises ModelError where it is no ordinary file, or larger than the limit."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ModelError(f"{path} is no file; copy the model folder again")
    if found.st_size > limit:
        raise ModelError(f"{path} has {found.st_size} bytes, over the limit of {limit}; give another model")
    return True


def _require_harmless(path: Path) -> None:
    for key, value in _entries(path, _parsed(path)):
        implementation = key.removesuffix("_internal").endswith("_implementation")
        if (implementation and value not in BUILT_IN) or (key in _CHOOSES_CODE and value):
            raise ModelError(
                f"{path} has the key {key}, which chooses code; remove the key from a copy of the folder, or give "
                "another model"
            )
        if path.name == _CONFIG and isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise ModelError(f"{path} gives {key} a number beyond {MAX_NUMBER}; give another model")


def _parsed(path: Path) -> Any:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no plain JSON ({line_of(error)}); copy the model folder again") from error
    if not isinstance(parsed, dict):
        raise ModelError(f"{path} is no JSON object; copy the model folder again")
    return parsed


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


def _entries(path: Path, value: Any, *, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every value with its key, at any depth. An item of a list has the key of the list."""
    if depth > MAX_DEPTH:
        raise ModelError(f"{path} nests more than {MAX_DEPTH} deep; give another model")
    yield key, value
    within = (
        value.items() if isinstance(value, dict) else ((key, each) for each in value) if isinstance(value, list) else ()
    )
    for name, each in within:
        yield from _entries(path, each, key=name, depth=depth + 1)


def line_of(error: BaseException) -> str:
    """Return an error's first line, cut to a readable length, without the signs that move a terminal's cursor."""
    lines = str(error).strip().splitlines()
    line = lines[0][:200] if lines else type(error).__name__
    return "".join(sign if sign.isprintable() else "?" for sign in line)
