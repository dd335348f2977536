"""Tells what the name of a model is: one of the Hugging Face hub, a GGUF file, or a folder. Names what is trained."""

import re
from pathlib import Path

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def is_hub_name(model: str) -> bool:
    """Whether this names a model of the Hugging Face hub; a folder that exists is a folder."""
    return _HUB_NAME.fullmatch(model) is not None and not is_gguf(model) and not Path(model).is_dir()


def is_gguf(model: str) -> bool:
    """Whether this names a GGUF file; a folder that exists is a folder."""
    return model.lower().endswith(".gguf") and not Path(model).is_dir()


def trained_part(lora: int, lora_layers: int) -> str:
    """Return what of a model is trained, in words."""
    layers = f"the last {lora_layers} layers" if lora_layers else "all layers"
    return f"adapters of rank {lora} in {layers}" if lora else "all weights"
