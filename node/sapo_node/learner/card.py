"""Writes the model card of an exported model, README.md: what it is, what it learnt, from whom, and how to ask it.

The hub reads the card's first lines, its front matter. The card contains no text of peers, no peer id, and no path of
this machine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sapo_node.groups.messages import is_hub_name
from sapo_node.groups.prompt import SYSTEM
from sapo_node.groups.stats import LEVEL, Interval
from sapo_protocol.printable import printable


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation on held-out prompts."""

    step: int
    pass_at_1: Interval
    """Mean of tasks."""
    tasks: Mapping[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Facts about the model from the database of a node."""

    base: str
    """The model before any training: a name, never a path."""
    swarm: str
    network_id: str
    """Hexadecimal."""
    license: str = ""
    """In the hub's spelling; empty if it is not known."""
    examples: int = 0
    """Worked examples that the model read before each prompt."""
    evaluations: tuple[Evaluation, ...] = ()
    """Oldest first."""
    local_tokens: int = 0
    external_tokens: int = 0
    """Tokens trained on: of this node's completions, and of peers' completions."""
    peers: int = 0
    """Peers whose completions were trained on."""
    filtered: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of external groups that a filter rejected as a whole."""
    taken_back: int = 0
    """Alarms of the filters that took steps back."""
    health_alarms: int = 0
    """Alarms about a policy that decays."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The contents of an exported folder."""

    step: int
    parameters: int
    """Parameters of the model, adapters included."""
    dtype: str
    lora: int
    """Rank of the adapters; 0 if all weights were trained."""
    adapter_only: bool
    best: bool
    """True for the weights of the best evaluation, false for those of the newest checkpoint."""


def model_card(facts: CardFacts, weights: Weights) -> str:
    """Return the card as Markdown with front matter."""
    parts = [_front_matter(facts, weights), _about(facts, weights), _held_out(facts, weights), _sources(facts)]
    return "\n".join([*parts, _usage(facts, weights)])


def _front_matter(facts: CardFacts, weights: Weights) -> str:
    values: dict[str, Any] = {
        "library_name": "peft" if weights.adapter_only else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["sapo", "sapo-node", "grpo", "reinforcement-learning", *(["lora"] if weights.lora else [])],
    }
    if is_hub_name(facts.base):
        values["base_model"] = facts.base
        values["base_model_relation"] = "adapter" if weights.adapter_only else "finetune"
    if facts.license:
        values["license"] = facts.license
    # Every JSON value is valid YAML.
    return "\n".join(["---", *(f"{name}: {json.dumps(value)}" for name, value in values.items()), "---", ""])


def _about(facts: CardFacts, weights: Weights) -> str:
    base, swarm = _plain(facts.base), _plain(facts.swarm)
    trained = f"LoRA adapters of rank {weights.lora}" if weights.lora else "all weights"
    which = "the best evaluation" if weights.best else "the newest checkpoint"
    return f"""# {base}, trained in the swarm {swarm}

A node of [SAPO](https://arxiv.org/abs/2509.08721) trained this model with GRPO on its own completions and on verified
completions of peers.

| | |
|---|---|
| base model | {base} |
| swarm | {swarm}, network `{facts.network_id[:16]}` |
| rounds | {weights.step:,} |
| trained | {trained} |
| contents | {"the adapters alone" if weights.adapter_only else "the whole model"}, {weights.parameters:,} parameters \
in the model, {weights.dtype} |
| weights | averaged over steps, of {which} |
"""


def _held_out(facts: CardFacts, weights: Weights) -> str:
    """Return the first evaluation, and the last one that is not later than the weights."""
    past = [each for each in facts.evaluations if each.step <= weights.step]
    title = "## Held-out pass@1\n\n"
    if not past:
        return f"{title}The node did not evaluate these weights.\n"
    shown = past[:1] if len(past) == 1 else [past[0], past[-1]]
    head = "| task |" + "".join(f" round {each.step:,} |" for each in shown)
    lines = [head, "|---|" + "---|" * len(shown)]
    lines.append("| **mean of tasks** |" + "".join(f" {_figure(each.pass_at_1)} |" for each in shown))
    for task in shown[-1].tasks:
        cells = (_figure(each.tasks[task]) if task in each.tasks else "" for each in shown)
        lines.append(f"| {_plain(task)} |" + "".join(f" {cell} |" for cell in cells))
    told = f"On prompts of seeds that no round assigns, with {LEVEL:.0%} intervals. Round 0 is before any training."
    return f"{title}{told}\n\n" + "\n".join(lines) + "\n"


def _sources(facts: CardFacts) -> str:
    tokens = facts.local_tokens + facts.external_tokens
    share = facts.external_tokens / tokens if tokens else 0.0
    from_peers = f"{share:.1%}, of {tokens:,} tokens and {facts.peers:,} peer{'s' * (facts.peers != 1)}"
    lines = [
        "## What it learnt from peers\n",
        f"- Share of the trained tokens that came from peers: {from_peers}.",
        f"- Alarms of the filters that took steps back: {facts.taken_back}.",
        f"- Alarms about a policy that decays: {facts.health_alarms}.",
        *(f"- Groups of peers rejected as a whole, {why}: {count:,}." for why, count in sorted(facts.filtered.items())),
        "\nThese counts reach from the first round of the node to the export.\n",
    ]
    return "\n".join(lines)


def _usage(facts: CardFacts, weights: Weights) -> str:
    lines = ["## How to ask it", "", "Sample at temperature 1, with this system prompt:", "", f"> {SYSTEM}", ""]
    if facts.examples:
        lines += [f"In training the model read {facts.examples} worked examples before each prompt, as turns of"]
        lines += ["user and assistant. Give it worked examples, too.", ""]
    library, kind = (
        ("peft", "AutoPeftModelForCausalLM") if weights.adapter_only else ("transformers", "AutoModelForCausalLM")
    )
    lines += ["```python", f"from {library} import {kind}", "from transformers import AutoTokenizer", ""]
    lines += [f'model = {kind}.from_pretrained(".")']
    return "\n".join([*lines, 'tokenizer = AutoTokenizer.from_pretrained(".")', "```", ""])


def _figure(interval: Interval) -> str:
    return f"{interval.point:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def _plain(text: str) -> str:
    """Return a name without signs that Markdown or a terminal would interpret."""
    return "".join(sign for sign in printable(text) if sign not in "`|<>[]\n")
