"""Estimates from the settings of a model how much memory a learner will need, before it loads any weight.

Weights, optimizer and gradients follow from the shapes of the model, exactly. What a batch takes is arithmetic for a
layer of Llama's shape, and an approximation for every other one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, float32

from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.device import cached_numbers, computes_bfloat16, free_memory, pick_device
from sapo_node.learner.model import Policy, is_recurrent, outline
from sapo_protocol.errors import LocalError

PROMPT_TOKENS = 256
"""Tokens of a prompt in the estimate."""
SLACK = 1.2
"""Factor on the bytes of temporary tensors: kernels need additional memory."""
OVERHEAD = 350_000_000
"""Bytes of what libraries load when they compute for the first time, and of freed blocks that the allocator keeps."""
WIDTHS, INNER_WIDTHS = 12, 4
"""Numbers that a layer keeps of a token for the backward pass, in widths of the model and of its feed-forward part."""
RECURRENT = 2
"""Factor on that in a model with recurrent layers, which keep their states, too."""
LOGITS = 6
"""Copies of the logits of a micro-batch that exist at once, with their gradients."""

_REMEDIES: tuple[Mapping[str, Any], ...] = (
    {"gradient_checkpointing": True},
    {"lora": 16},
    {"lora": 16, "dtype": "bfloat16"},
    {"lora": 16, "dtype": "bfloat16", "gradient_checkpointing": True},
)
"""Settings that need less memory. The first one costs least."""
_SLOW = "; this device has no instructions for bfloat16, and --dtype float32 is several times as fast"


class OutOfReach(LocalError):
    """With these settings the model needs more memory than this machine has. A restart does not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes at the peak. Weights and optimizer are always in memory; training and sampling alternate."""

    weights: int
    """The weights of the model, the fp32 copies of trained weights, and the adapters as they are at step 0."""
    optimizer: int
    """Adam's moments, and the average of the trained weights."""
    gradients: int
    activations: int
    """The larger of two: training on one micro-batch, logits included, or Adam's update."""
    sampling: int
    """The cache of keys and values, and the logits."""
    overhead: int = OVERHEAD

    @property
    def peak(self) -> int:
        return self.overhead + self.weights + self.optimizer + max(self.gradients + self.activations, self.sampling)

    def __str__(self) -> str:
        names = ("weights", "optimizer", "gradients", "activations", "overhead", "sampling")
        parts = [f"{name} {_size(size)}" for name in names if (size := getattr(self, name))]
        return f"{_size(self.peak)} ({', '.join(parts)})"


def require_memory(options: LearnerOptions) -> str:
    """Return one line with the needed and the free memory. Raises OutOfReach, with advice, if too little is free, and
    ModelError if the folder describes no model.
    """
    device = pick_device(options.device)
    free, needed = free_memory(device), estimate(options)
    if needed.peak <= free:
        slow = options.dtype == "bfloat16" and not computes_bfloat16(device)
        return f"memory: about {needed}; {_size(free)} free on {device}{_SLOW if slow else ''}"
    raise OutOfReach(
        f"{options.model} needs about {needed} of memory, and {device} has {_size(free)} free: {_remedy(options, free)}"
    )


def frugal_settings(options: LearnerOptions) -> str:
    """Return which settings need less memory than these: advice for when memory runs out."""
    flags = dict.fromkeys(flag for changes in _changes(options) for flag in _flags(changes))
    return f"these settings need less: {', '.join([*flags, 'fewer --max-tokens'])}"


def _remedy(options: LearnerOptions, free: int) -> str:
    """Return the first of _REMEDIES with which the model fits."""
    for changes in _changes(options):
        needed = estimate(replace(options, **changes)).peak
        if needed <= free:
            return f"{' '.join(_flags(changes))} would need {_size(needed)}"
    return "no setting makes it fit; give a smaller model, or fewer --max-tokens"


def _changes(options: LearnerOptions) -> Iterator[Mapping[str, Any]]:
    """Yield what each of _REMEDIES changes of the settings. Adapters keep their rank."""
    for remedy in _REMEDIES:
        wanted = {**remedy, "lora": options.lora} if options.lora and "lora" in remedy else remedy
        if changes := {name: value for name, value in wanted.items() if getattr(options, name) != value}:
            yield changes


def _flags(changes: Mapping[str, Any]) -> list[str]:
    return [
        "--gradient-checkpointing" if name == "gradient_checkpointing" else f"--{name} {value}"
        for name, value in changes.items()
    ]


def estimate(options: LearnerOptions) -> Estimate:
    """Return the estimate for a full round of the longest completions. Raises ModelError if the folder has no model."""
    policy = outline(options)
    policy.model.tie_weights()
    trained = [value for _, value in policy.trainable()]
    in_fp32 = sum(4 * value.numel() for value in trained)
    copies = sum(4 * value.numel() for value in trained if value.dtype != float32)
    at_step_0 = _bytes(trained) if policy.lora else 0
    return Estimate(
        weights=_bytes([*policy.model.parameters(), *policy.model.buffers()]) + copies + at_step_0,
        # Adam keeps two moments of each weight, and the trainer an average.
        optimizer=3 * in_fp32,
        gradients=in_fp32,
        # While Adam updates, it needs the memory of one moment more.
        activations=max(int(SLACK * _training(policy, options)), in_fp32),
        sampling=int(SLACK * _sampling(policy, options)),
    )


def _training(policy: Policy, options: LearnerOptions) -> int:
    """Return the bytes of one micro-batch as `batch.micro_batches` cuts it, without the gradients of weights."""
    config, at_once = policy.model.config.get_text_config(), policy.at_once
    written = options.completions * options.max_tokens
    group = PROMPT_TOKENS + written
    bound = at_once.read * (2 if group > at_once.read else 1)
    read = min(options.groups * group, max(bound, PROMPT_TOKENS + options.max_tokens))
    predicted = min(read * written // group, max(options.max_tokens, at_once.logits // policy.vocabulary))
    layers, width = int(config.num_hidden_layers), int(config.hidden_size)
    layer = (WIDTHS * width + INNER_WIDTHS * _inner(config)) * (RECURRENT if is_recurrent(config) else 1)
    trained = min(policy.lora_layers or layers, layers)
    kept = layers * width + layer if options.gradient_checkpointing else trained * layer
    tokens = predicted * group // written
    numbers = tokens * (kept + cached_numbers(config)) + LOGITS * predicted * policy.vocabulary
    return numbers * int(policy.model.dtype.itemsize)


def _inner(config: Any) -> int:
    """Return the width of the feed-forward part: that of all experts of a token together in a mixture."""
    inner = getattr(config, "intermediate_size", None) or 4 * int(config.hidden_size)
    experts = int(getattr(config, "num_experts_per_tok", None) or 1)
    of_expert = int(getattr(config, "moe_intermediate_size", None) or 0)
    return max(max(inner) if isinstance(inner, list) else int(inner), experts * of_expert)


def _sampling(policy: Policy, options: LearnerOptions) -> int:
    """Return the bytes of the cache and of the logits when the last token of the longest completions is sampled."""
    tokens = PROMPT_TOKENS + options.max_tokens
    rows = min(policy.at_once.rows(tokens, policy.vocabulary), options.groups * options.completions)
    cached = int(policy.model.dtype.itemsize) * tokens * cached_numbers(policy.model.config.get_text_config())
    return rows * (cached + 3 * float32.itemsize * policy.vocabulary)


def _bytes(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of the tensors. A tensor that is named twice counts once."""
    return sum({id(value): value.nbytes for value in tensors}.values())


def _size(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"
