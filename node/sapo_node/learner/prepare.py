"""What is done to a model before it generates and learns: adapters, gradient checkpointing, and a check of its kind."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.checkpoint import checkpoint
from transformers import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.folder import ModelError


def prepared(model: Any, options: LearnerOptions) -> Any:
    """Return the model with the adapters and the way of keeping activations that the options ask for."""
    _require_attention(model)
    if options.gradient_checkpointing:
        _forget_activations(model)
    return _with_adapters(model, options.lora) if options.lora else model


def _require_attention(model: Any) -> None:
    """Raises ModelError for a model whose memory is not a cache of keys and values that rows can share."""
    # The library has no public name for it.
    if getattr(model, "_is_stateful", False) or "logits_to_keep" not in signature(model.forward).parameters:
        raise ModelError(
            f"{type(model).__name__} is not a decoder with attention alone: it keeps a recurrent state. Give a model "
            "with attention in every layer, such as Qwen/Qwen2.5-0.5B-Instruct, or another of the kinds Llama or Qwen2"
        )


def _forget_activations(model: Any) -> None:
    """Have each layer keep its input alone when it is trained, and compute the rest again in the backward pass."""
    layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(f"{type(model).__name__} knows no gradient checkpointing; leave it off")
    for layer in layers:
        # The library's own switch works in training mode only, which turns dropout on, and takes the cache away.
        layer.forward = partial(_run_forgetful, layer.forward)


def _run_forgetful(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    caches = [value for value in (*args, *kwargs.values()) if isinstance(value, Cache)]
    layers = [layer for cache in caches for layer in cache.layers]
    before = [dict(vars(layer)) for layer in layers]

    def run(*args: Any, **kwargs: Any) -> Any:
        # A layer writes to the cache: the second time it must find there what it found the first time.
        for layer, state in zip(layers, before, strict=True):
            vars(layer).update(state)
        return forward(*args, **kwargs)

    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def _with_adapters(model: Any, rank: int) -> Any:
    # The adapters start from a fixed state, so that a restart before the first checkpoint repeats exactly.
    torch.manual_seed(0)
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(model, config)
