"""Tells what the name of a model is: one of the Hugging Face hub, a GGUF file, or a folder."""

import re
from pathlib import Path

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def is_hub_name(model: str) -> bool:
    """Whether this names a model of the Hugging Face hub; a folder that exists is a folder."""
    return _HUB_NAME.fullmatch(model) is not None and not is_gguf(model) and not Path(model).is_dir()


def is_gguf(model: str) -> bool:
    """Whether this names a GGUF file; a folder that exists is a folder."""
    return model.lower().endswith(".gguf") and not Path(model).is_dir()
