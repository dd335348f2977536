"""Reads the weights of a model folder. First it compares them with config.json: all are there, in the sizes described,
and fit in the free memory. Afterwards it asks that all are finite.

Nothing here runs code of the folder, and each error is one of transformers or a ModelError. The caller makes all of
them ModelErrors.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

from sapo_node.learner.device import free_memory
from sapo_node.learner.folder import BUILT_IN, ModelError, weight_files

_NAMED = 3
"""Weights that an error names, at most."""


def pretrained(folder: Path, dtype: torch.dtype, **ways: Any) -> Any:
    """Return the model with its weights; `ways` are further arguments for transformers."""
    return AutoModelForCausalLM.from_pretrained(
        folder,
        config=config_of(folder),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        **ways,
    )


def require_weights(folder: Path, dtype: torch.dtype, device: torch.device) -> None:
    """Raises ModelError if the folder has no file of weights, if a weight has another size than config.json gives it,
    if the weights do not fit in memory, or if one is missing. The head of tied embeddings is not missing.

    On the meta device transformers compares all sizes and reads no weight. In memory it would read a weight of any size
    first, and fill weights that are missing at random.
    """
    if not weight_files(folder):
        raise ModelError(
            f"{folder} has no weights in the safetensors format, and the node reads no other; to convert "
            "pytorch_model.bin, load the model with transformers and call save_pretrained with a new folder"
        )
    before = get_verbosity()
    set_verbosity_error()  # it reports on weights again when it reads them
    try:
        model, found = pretrained(
            folder, dtype, device_map="meta", ignore_mismatched_sizes=True, output_loading_info=True
        )
    finally:
        set_verbosity(before)
    for name, held, described in found["mismatched_keys"]:
        raise ModelError(
            f"{folder} holds {name} of the size {list(held)}, and its config.json describes {list(described)}; give "
            "another model"
        )
    needed, free = sum(value.nbytes for value in model.parameters()), free_memory(device)
    if needed > free:
        raise ModelError(
            f"the weights that {folder} describes take {needed:,} bytes, and {device} has {free:,} free; give a "
            "smaller model"
        )
    if missing := sorted(found["missing_keys"]):
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise ModelError(
            f"{folder} lacks weights that its config.json describes: {', '.join(missing[:_NAMED])}{more}; copy all "
            "files of the model again, or give another model"
        )


def require_finite(model: Any, folder: Path) -> None:
    """Raises ModelError if a weight is infinite or no number. A prompt that meets it would end the node in a round."""
    for name, value in model.named_parameters():
        # The least and the largest of a weight are no numbers if one of its values is none. This copies no weight.
        if value.numel() and not all(bound.isfinite() for bound in torch.aminmax(value.detach())):
            raise ModelError(
                f"{folder} holds values in {name} that are infinite or no numbers; copy all files of the model again, "
                "or give another model"
            )


def config_of(folder: Path) -> Any:
    """Return the settings of the model. Raises ModelError if they name foreign code for attention or experts."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # An argument of from_pretrained does not override the choice in the folder, so this checks the choice itself.
    for each in _with_parts(config):
        for choice in ("_attn_implementation", "_experts_implementation"):
            if getattr(each, choice, None) not in BUILT_IN:
                raise ModelError(f"{folder} chooses code by {choice}; give another model")
    return config


def _with_parts(config: Any) -> Iterator[Any]:
    """Yield the settings of a model, and the settings of each model that it contains."""
    yield config
    for part in vars(config).values():
        if isinstance(part, PretrainedConfig):
            yield from _with_parts(part)
