"""Prepares a model for generation and training: checks its architecture, adds adapters and gradient checkpointing."""

import re
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Cache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D

from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.folder import ModelError
from sapo_node.learner.states import RECURRENT, is_recurrent

_NUMBER = re.compile(r"\.([0-9]+)\.")
"""The number of a layer in the name of a module, for example model.layers.12.mlp.up_proj."""


def prepared(model: Any, options: LearnerOptions) -> Any:
    """Return the model with adapters and gradient checkpointing, if the options ask for them. Raises ModelError.

    Of a model that also reads images or sound, only what computes text is trained.
    """
    _require_known_state(model)
    if _is_multimodal(model):
        _freeze_all_but_text(model)
    if options.gradient_checkpointing:
        _forget_activations(model)
    return _with_adapters(model, options) if options.lora else model


def _require_known_state(model: Any) -> None:
    """Raises ModelError unless the model is a decoder with attention in every layer, or one of RECURRENT."""
    config = model.config.get_text_config()
    # transformers has no public name for the property.
    recurrent = getattr(model, "_is_stateful", False) or is_recurrent(config)
    if "logits_to_keep" not in signature(model.forward).parameters or (
        recurrent and config.model_type not in RECURRENT
    ):
        raise ModelError(
            f"{type(model).__name__} is a decoder that the node cannot train. Give a model with attention in every "
            f"layer, for example Qwen/Qwen2.5-0.5B-Instruct, or one of these types with recurrent layers: "
            f"{', '.join(sorted(RECURRENT))}"
        )


def _is_multimodal(model: Any) -> bool:
    return model.config.get_text_config() is not model.config


def _freeze_all_but_text(model: Any) -> None:
    model.requires_grad_(requires_grad=False)
    for part in (model.get_decoder(), model.get_output_embeddings()):
        part.requires_grad_(requires_grad=True)


def _forget_activations(model: Any) -> None:
    """Have each layer store only its input in training, and compute its activations again in the backward pass."""
    layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(f"{type(model).__name__} has no gradient checkpointing; turn gradient_checkpointing off")
    for layer in layers:
        # The switch of transformers needs training mode, which turns dropout on, and it turns the cache off.
        layer.forward = partial(_run_forgetful, layer.forward)


def _run_forgetful(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    caches = [value for value in (*args, *kwargs.values()) if isinstance(value, Cache)]
    layers = [layer for cache in caches for layer in cache.layers]
    before = [dict(vars(layer)) for layer in layers]

    def run(*args: Any, **kwargs: Any) -> Any:
        # A layer writes to the cache. So restore the cache before the layer computes a second time.
        for layer, state in zip(layers, before, strict=True):
            vars(layer).update(state)
        return forward(*args, **kwargs)

    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def _with_adapters(model: Any, options: LearnerOptions) -> Any:
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - takes a second that a model without adapters need not wait

    # Adapters start from a fixed seed. So a restart before the first checkpoint starts from the same weights.
    torch.manual_seed(0)
    config = LoraConfig(
        r=options.lora,
        lora_alpha=2 * options.lora,
        lora_dropout=0.0,
        target_modules=_adapted(model, options.lora_layers),
        exclude_modules=_without_adapters(model) or None,
        task_type="CAUSAL_LM",
    )
    # The trainer holds what it updates in fp32, so the adapters compute in the format of the model.
    return get_peft_model(model, config, autocast_adapter_dtype=False)


def _without_adapters(model: Any) -> list[str]:
    """Return the linear modules that can have no adapter, by name."""
    if model.config.model_type == "falcon_h1":
        return ["out_proj"]  # peft refuses adapters there, because of a kernel that would pass them over
    # The routers of Llama 4 and of PhiMoE are linear modules, and choose experts in the same call.
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and not _is_linear(module)]


def _is_linear(module: nn.Linear) -> bool:
    """Return whether the module is a matrix product and nothing else. That of Falcon is, in a class of its own."""
    if type(module) is nn.Linear:
        return True
    output = module(module.weight.new_zeros(2, module.in_features))
    return isinstance(output, torch.Tensor) and output.shape == (2, module.out_features)


def _adapted(model: Any, top_layers: int) -> list[str] | str:
    """Return the modules that have adapters, by name: the linear ones of the last layers, or of all layers if
    `top_layers` is 0. Nothing below them needs a backward pass.
    """
    if not top_layers and not _is_multimodal(model):
        return "all-linear"
    first = int(model.config.get_text_config().num_hidden_layers) - top_layers if top_layers else 0
    text = set(model.get_decoder().modules())
    linear = [
        name for name, module in model.named_modules() if module in text and isinstance(module, (nn.Linear, Conv1D))
    ]
    numbered = ((name, _NUMBER.search(name)) for name in linear)
    return [name for name, number in numbered if number and int(number[1]) >= first]
