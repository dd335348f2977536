"""The continuous batching of transformers in one process: it generates a round per line on standard input, and trains
nothing. Its figures are JSON on standard output, like those of the learners in `learner_worker`.

It gets what a user of transformers would choose for speed: weights without adapters, as after a merge, the attention
that transformers picks for the device, and completions of one prompt that share its cache.

It has no stop strings: a completion ends with an end token of the model or with the longest length.
"""

import json
import logging
import sys
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from math import ceil

import torch
from learner_worker import COMPLETIONS, Setting, Stopwatch, examples_of, items_of, peak_mib, rewards_of, tell
from transformers import ContinuousBatchingConfig, GenerationConfig

from sapo_node.learner.model import load

PAGE = 256
"""Tokens in one block of the cache, by default."""
BATCH_TOKENS = 8192
"""Tokens that are read at once, at most, by default."""


def generation_config(policy):
    return GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        num_return_sequences=COMPLETIONS,
        eos_token_id=list(policy.ends),
        pad_token_id=policy.pad,
    )


def cache_config(prompts, longest):
    """Return a cache with room for a whole round at once, and for reading all its prompts at once. By default it takes
    nearly all memory of the device, which the learners share.
    """
    blocks = sum(COMPLETIONS * ceil((len(prompt) + longest) / PAGE) for prompt in prompts)
    at_once = max(COMPLETIONS * len(prompts), sum(map(len, prompts)))
    return ContinuousBatchingConfig(num_blocks=blocks, max_batch_tokens=min(BATCH_TOKENS, at_once))


@contextmanager
def manager_of(policy, prompts, longest):
    """Yield a manager with an empty cache: what was read before a training step does not hold after it."""
    configs = {
        "generation_config": generation_config(policy),
        "continuous_batching_config": cache_config(prompts, longest),
    }
    with policy.model.continuous_batching_context_manager(**configs) as manager:
        yield manager


def complete(manager, prompts, longest):
    """Return the tokens of each prompt's completions. Raises RuntimeError if the manager fails."""
    asked = manager.add_requests(prompts, max_new_tokens=longest)
    done = list(islice(manager, len(prompts) * COMPLETIONS))
    errors = [each.error for each in done if each.error]
    if errors or len(done) < len(prompts) * COMPLETIONS:
        raise RuntimeError(errors[0] if errors else "it ended early")
    groups = {request: [] for request in asked}
    for each in done:
        groups[each.request_id.partition("__child")[0]].append(each.generated_tokens)
    return list(groups.values())


def run(setting):
    options, examples = replace(setting.options, lora=0, lora_layers=0), examples_of(setting.model)
    policy, watch = load(options), Stopwatch(setting.device)
    # The node's search for repeatable kernels costs time that a user of transformers does not spend.
    torch.use_deterministic_algorithms(False)
    rounds = [items_of(setting.model, setting.groups, number) for number in range(setting.rounds)]
    prompts = [
        [policy.prompt_tokens(examples.prompt(item.dataset, item.task.prompt)) for item in items] for items in rounds
    ]
    try:
        with manager_of(policy, prompts[0], options.max_tokens) as manager:
            complete(manager, prompts[0][:1], longest=2)
            attention = policy.model.config.get_text_config()._attn_implementation
    except Exception as error:  # noqa: BLE001 - what it refuses with has no class of its own
        tell({"refused": f"{type(error).__name__}: {error}"})
        return
    tell({"peak_mib": peak_mib(setting.device), "attention": attention})
    for items, asked in zip(rounds, prompts, strict=True):
        sys.stdin.readline()
        with manager_of(policy, asked, options.max_tokens) as manager:
            watch.begin()
            with watch.phase("generate"):
                groups = complete(manager, asked, options.max_tokens)
            with watch.phase("score"):
                scored = [
                    rewards_of(item, [policy.decode(tokens) for tokens in group], setting.rewards)
                    for item, group in zip(items, groups, strict=True)
                ]
            lengths = [len(tokens) for group in groups for tokens in group]
            watch.report(lengths, sum(len(set(values)) == 1 for values in scored))
    tell({"peak_mib": peak_mib(setting.device)})


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    run(Setting(**json.loads(sys.argv[-1])))
