"""Estimates how much memory a learner will need, before it loads anything.

The estimate runs a training step and sampling on tensors without data, at the largest sizes that the settings allow,
and counts the bytes of the tensors that exist at the same time. So it works for any architecture, and follows every
change of this code. For a large model this takes minutes, so the weights alone are compared with the free memory first.
"""

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner import grpo
from sapo_node.learner.batch import Row, completion_logits, micro_batches
from sapo_node.learner.device import computes_bfloat16, free_memory, pick_device
from sapo_node.learner.forward import read_prompts, run
from sapo_node.learner.model import ModelError, Policy, outline
from sapo_node.learner.states import select
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import line_of

PROMPT_TOKENS = 256
"""Tokens of a prompt in the estimate."""
SLACK = 1.2
"""Factor on the bytes of temporary tensors: kernels need additional memory."""
OVERHEAD = 350_000_000
"""Bytes of what libraries load when they compute for the first time, and of freed blocks that the allocator keeps: only
large ones go back to the system. With the factor it makes the estimate an upper bound. Measured on CPU: 11 trainings of
models of 34 to 135 M parameters took at most 0.98 of their estimate."""
logger = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
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
    """The cache of keys and values, the logits, and the memory for reading the prompts."""
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
    ModelError if the model cannot compute.
    """
    device = pick_device(options.device)
    free = free_memory(device)
    try:
        policy = outline(options)
        needed, words = _without_rounds(policy), "at least"
        if needed.peak <= free:
            needed, words = _with_rounds(policy, options), "about"
    except LocalError:
        raise
    except RuntimeError as error:
        # In some models, for example a mixture of experts, the computation depends on the data of the tensors.
        logger.info("memory cannot be estimated: %s", error)
        return f"memory: cannot be estimated for this architecture; {_size(free)} free on {device}"
    except Exception as error:  # the code of an architecture may raise any error
        raise ModelError(f"the node cannot compute with {options.model}: {line_of(error)}") from error
    if needed.peak <= free:
        slow = options.dtype == "bfloat16" and not computes_bfloat16(device)
        return f"memory: about {needed}; {_size(free)} free on {device}{_SLOW if slow else ''}"
    raise OutOfReach(
        f"{options.model} needs {words} {needed} of memory, and {device} has {_size(free)} free: "
        f"{_advice(options, free, fewer_tokens=words == 'about')}"
    )


def _advice(options: LearnerOptions, free: int, *, fewer_tokens: bool) -> str:
    """Return the first of _REMEDIES with which the model fits. `fewer_tokens` is whether fewer may make it fit, too."""
    for changes in _changes(options):
        changed = replace(options, **changes)
        policy = outline(changed)
        needed, words = _without_rounds(policy), "at least "
        if needed.peak > free:
            continue
        fewer_tokens = True
        with suppress(RuntimeError):  # the memory of some architectures cannot be estimated
            needed, words = _with_rounds(policy, changed), ""
        if needed.peak <= free:
            flags = {"gradient_checkpointing": "--gradient-checkpointing"}
            named = [flags.get(name) or f"--{name} {value}" for name, value in changes.items()]
            return f"{' '.join(named)} would need {words}{_size(needed.peak)}"
    return f"no setting makes it fit; give a smaller model{', or fewer --max-tokens' if fewer_tokens else ''}"


def _changes(options: LearnerOptions) -> Iterator[Mapping[str, Any]]:
    """Yield what each of _REMEDIES changes of the settings, each change once. Adapters keep their rank."""
    known: list[Mapping[str, Any]] = [{}]
    for remedy in _REMEDIES:
        wanted = {**remedy, "lora": options.lora} if options.lora and "lora" in remedy else remedy
        changes = {name: value for name, value in wanted.items() if getattr(options, name) != value}
        if changes not in known:
            known.append(changes)
            yield changes


def estimate(options: LearnerOptions) -> Estimate:
    """Return the estimate for a full round of the longest completions. Raises ModelError if the folder has no model."""
    return _with_rounds(outline(options), options)


def _with_rounds(policy: Policy, options: LearnerOptions) -> Estimate:
    with FakeTensorMode(allow_non_fake_inputs=True):
        policy.model.to_empty(device="cpu")
        needed = _without_rounds(policy)
        return replace(
            needed,
            activations=max(int(SLACK * _training(policy, options)), needed.activations),
            sampling=int(SLACK * _sampling(policy, options)),
        )


def _without_rounds(policy: Policy) -> Estimate:
    """Return what a policy needs whatever it reads and writes: less than a round needs."""
    policy.model.tie_weights()
    trained = [value for _, value in policy.trainable()]
    in_fp32 = sum(4 * value.numel() for value in trained)
    copies = sum(4 * value.numel() for value in trained if value.dtype != torch.float32)
    kept = _bytes(trained) if policy.lora else 0
    return Estimate(
        weights=_bytes([*policy.model.parameters(), *policy.model.buffers()]) + copies + kept,
        # Adam keeps two moments of each weight, and the trainer an average. While Adam updates, it needs the memory of
        # one moment more.
        optimizer=3 * in_fp32,
        gradients=in_fp32,
        activations=in_fp32,
        sampling=0,
    )


def _training(policy: Policy, options: LearnerOptions) -> int:
    """Return the peak bytes of one micro-batch, without the gradients that remain after it."""
    for _, value in policy.trainable():
        value.register_post_accumulate_grad_hook(_discard)  # type: ignore[no-untyped-call]
    peak = _Peak(policy.model)
    with peak:
        batch = next(micro_batches(policy, list(_full_round(options))))
        logits = completion_logits(policy, batch)
        grpo.token_logprobs(logits, batch.targets).sum().backward()  # type: ignore[no-untyped-call]
        grpo.token_entropy(logits.detach())
    return peak.bytes


def _discard(value: Tensor) -> None:
    value.grad = None


def _full_round(options: LearnerOptions) -> Iterator[Row]:
    for group in range(options.groups):
        # The model reads equal prompts and equal beginnings only once, so these prompts differ in their first token.
        prompt = (group,) + (0,) * (PROMPT_TOKENS - 1)
        text = (0,) * options.max_tokens
        row = Row(str(group), 0, source="local", prompt=prompt, completion=text, advantage=1.0, weight=1.0)
        yield from [row] * options.completions


@torch.no_grad()
def _sampling(policy: Policy, options: LearnerOptions) -> int:
    """Return the peak bytes of reading prompts and of sampling the last token of the longest completions."""
    tokens = PROMPT_TOKENS + options.max_tokens
    rows = min(policy.at_once.rows(tokens, policy.vocabulary), options.groups * options.completions)
    prompts = max(1, rows // options.completions)
    read = [(0,) * tokens] * prompts
    peak = _Peak(policy.model)
    with peak:
        _, cache, mask = read_prompts(policy, read, {})
        select(cache, torch.arange(prompts).repeat_interleave(options.completions))
        mask = torch.ones(prompts * options.completions, mask.shape[1] + 1, dtype=torch.long)
        new = torch.zeros_like(mask[:, :1])
        logits = run(policy, new, mask, new, cache, keep=1)[:, -1].float()
        torch.softmax(logits / 1.0, dim=-1)
    return peak.bytes


class _Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context, counts the bytes of new tensors that exist at the same time."""

    def __init__(self, model: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self._alive = 0
        self._known = {id(value.untyped_storage()) for value in (*model.parameters(), *model.buffers())}

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and id(leaf.untyped_storage()) not in self._known:
                self._hold(leaf.untyped_storage())
        return result

    def _hold(self, storage: torch.UntypedStorage) -> None:
        self._known.add(id(storage))
        weakref.finalize(storage, self._release, id(storage), storage.nbytes())
        self._alive += storage.nbytes()
        self.bytes = max(self.bytes, self._alive)

    def _release(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._alive -= size


def _bytes(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of the tensors. Tensors that share memory count once."""
    return sum({id(value.untyped_storage()): value.nbytes for value in tensors}.values())


def _size(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"
