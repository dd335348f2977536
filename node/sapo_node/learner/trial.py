"""Tries a model once, before the learner trains it: one check for every architecture of transformers.

The model samples a few tokens as in a round, reads them as in a training step, and reads them as transformers does
without a cache. All three must give the same log-probabilities, and the step must give a gradient. Else sampling,
training and the exported model would be three policies, or every round would fail.

The trial changes no weight, and keeps no gradient of a large weight in memory.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from sapo_node.groups.messages import GenerateRequest, Sampled
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.batch import Row, completion_logits, micro_batches
from sapo_node.learner.forward import IMPOSSIBLE, Tokens
from sapo_node.learner.generate import sample
from sapo_node.learner.grpo import token_logprobs
from sapo_node.learner.model import ModelError, Policy
from sapo_protocol.printable import line_of

PROMPT = 72
"""Tokens of the longer prompt, at most: enough for prompts with a common beginning, and for several completions that
share the cache of one."""
COMPLETIONS = 4
TOKENS = 6
"""Tokens of a completion, at most: enough for a CUDA graph."""
EXACT, ROUNDED = 2e-3, 0.1
"""Nats per token by which log-probabilities may differ, as a mean, in float32 and in fewer bits. In float32 the
architectures that work differ by 1e-5 at most, and GIT, which takes cached text for an image, by 1e-2."""
_GRADIENT = 2**22
"""Numbers whose gradients the trial computes, at most, unless the smallest trained weight has more."""


def require_trainable(policy: Policy) -> None:
    """Raises ModelError, in one line, unless the model samples and trains as the learner needs it."""
    try:
        found = _problem(policy)
    except ModelError:
        raise
    except Exception as error:  # an architecture that does not fit may raise any error
        raise _refusal(policy, line_of(error)) from error
    if found:
        raise _refusal(policy, found)


def _refusal(policy: Policy, found: str) -> ModelError:
    kind = type(policy.model.get_base_model() if policy.lora else policy.model).__name__
    return ModelError(
        f"{kind} cannot be trained by this node: a trial of sampling and training fails ({found}); give another "
        "model, for example Qwen/Qwen2.5-0.5B-Instruct"
    )


def _problem(policy: Policy) -> str:
    """Return what is wrong, if anything."""
    prompts = _prompts(policy)
    request = GenerateRequest((), COMPLETIONS, TOKENS, 1, 1.0)
    rows = [
        _row(prompt, number, sampled)
        for prompt, group in zip(prompts, sample(policy, prompts, request, 2**16), strict=True)
        for number, sampled in enumerate(group)
    ]
    difference, gradient = _trained(policy, rows)
    allowed = EXACT if policy.model.dtype == torch.float32 else ROUNDED
    if not difference <= allowed:
        return f"training differs from sampling by {difference:.2g} nats per token"
    difference = _mean(abs(_alone(policy, row) - torch.tensor(row.sampled)) for row in rows[::COMPLETIONS])
    if not difference <= allowed:
        return f"sampling with a cache differs by {difference:.2g} nats per token from reading without one"
    return "" if gradient.isfinite() and gradient > 0 else "no gradient reaches the trained weights"


def _prompts(policy: Policy) -> list[Tokens]:
    """Return two prompts of unlike length that begin alike."""
    ids = policy.prompt_tokens(Prompt("Spell this word backward: moon"))
    length = max(2, min(PROMPT, policy.context - TOKENS))
    longer = tuple((ids * length)[:length])
    return [longer, (*longer[: 2 * length // 3], *longer[: length // 6])]


def _row(prompt: Tokens, number: int, sampled: Sampled) -> Row:
    tokens, logprobs = sampled.tokens or (), sampled.logprobs
    if sampled.end:
        tokens, logprobs = (*tokens, sampled.end[0]), (*logprobs, sampled.end[1])
    return Row(
        group="trial",
        number=number,
        source="local",
        prompt=prompt,
        completion=tokens,
        advantage=1.0,
        weight=1.0,
        sampled=logprobs,
    )


def _trained(policy: Policy, rows: Sequence[Row]) -> tuple[float, Tensor]:
    """Return the mean difference of training from sampling, and the norm of the gradient."""
    chosen = _smallest(policy)
    gradients = [torch.zeros(()) for _ in chosen]
    differences = []
    for batch in micro_batches(policy, rows):
        logprobs = token_logprobs(completion_logits(policy, batch), batch.targets)
        differences.append(abs(logprobs.detach() - batch.sampled)[batch.mask.bool()])
        found = torch.autograd.grad((logprobs * batch.mask).sum(), chosen, allow_unused=True)
        gradients += [each.norm().cpu() for each in found if each is not None]
    return _mean(differences), torch.stack(gradients).norm()


def _smallest(policy: Policy) -> list[Tensor]:
    """Return the smallest trained weights: those of each layer, without the large ones."""
    trained = sorted((value for _, value in policy.trainable()), key=lambda value: value.numel())
    chosen: list[Tensor] = []
    total = 0
    for value in trained:
        total += value.numel()
        if chosen and total > _GRADIENT:
            break
        chosen.append(value)
    return chosen


@torch.no_grad()
def _alone(policy: Policy, row: Row) -> Tensor:
    """Return the log-probabilities of a completion as transformers gives them for one text, without a cache."""
    ids = torch.tensor([[*row.prompt, *row.completion]], device=policy.device)
    logits = policy.model(input_ids=ids, use_cache=False).logits[:, len(row.prompt) - 1 : -1].float()
    logits.index_fill_(-1, policy.forbidden, IMPOSSIBLE)
    return token_logprobs(logits, ids[:, len(row.prompt) :])[0].cpu()


def _mean(differences: Iterable[Tensor]) -> float:
    return float(torch.cat([each.float().cpu() for each in differences]).mean())
