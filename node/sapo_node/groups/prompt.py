"""The prompt that an answerer reads, and the answer in its completion.

Every answerer reads the same: model, endpoint, program or person. A base model, and a small instruct model, often does
not use the answer tags before it has seen them used, and then never earns a reward. Worked examples of the same task
show it how (few-shot prompting, Brown et al. 2020).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sapo_protocol import Manifest

SYSTEM = (
    "Answer the question. You may think first; then give only the final answer between <answer> and </answer> tags."
)


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example: a prompt of the same task, and a correct completion."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A task's prompt, with the worked examples that the model reads before it."""

    text: str
    examples: tuple[Example, ...] = ()


def chat(prompt: Prompt) -> list[dict[str, str]]:
    """Return a prompt as the messages of a chat: each example is a turn of the user and one of the assistant."""
    turns = [(each.prompt, each.completion) for each in prompt.examples]
    return [
        {"role": "system", "content": SYSTEM},
        *(message for turn in turns for message in _turn(*turn)),
        {"role": "user", "content": prompt.text},
    ]


def _turn(asked: str, answered: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]


MAX_EXAMPLES = 8
"""Examples before a prompt, at most."""


@dataclass(frozen=True, slots=True)
class Examples:
    """The worked examples of each task of a swarm."""

    count: int = 0
    """Examples that a prompt gets."""
    by_dataset: Mapping[str, tuple[Example, ...]] = field(default_factory=dict)
    """By the name of the task. One more than `count`, so that a prompt which is an example itself gets the others."""

    def prompt(self, dataset: str, text: str) -> Prompt:
        """Return a task's prompt with its examples. No example asks what the prompt asks."""
        others = (each for each in self.by_dataset.get(dataset, ()) if each.prompt != text)
        return Prompt(text, tuple(each for each, _ in zip(others, range(self.count), strict=False)))


NO_EXAMPLES = Examples()


def task_name(manifest: Manifest, dataset: str, config: Mapping[str, Any]) -> str:
    """Return the name of the task that has this dataset and configuration: the name of the dataset, with a number in
    the order of the manifest if the manifest has several configurations of the dataset (`chain_sum 2`).
    """
    configs: list[Mapping[str, Any]] = []
    for spec in manifest.tasks:
        if spec.dataset == dataset and spec.config not in configs:
            configs.append(spec.config)
    return dataset if len(configs) == 1 else f"{dataset} {1 + configs.index(config)}"
