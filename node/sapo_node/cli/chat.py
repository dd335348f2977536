"""Talks to the policy of a node: the learner answers what a person types. Starts no network, and writes no file."""

import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from sapo_node.app.config import Config
from sapo_node.app.learner_options import learner_options
from sapo_node.app.recipe import recipe_of
from sapo_node.app.state import StateFolder
from sapo_node.groups.messages import Ready, RequestError, Sampled
from sapo_node.groups.prompt import Example, Prompt
from sapo_node.learner.client import Learner
from sapo_protocol import Manifest
from sapo_protocol.printable import printable


@dataclass(slots=True)
class Conversation:
    """The last turns. They stand before a prompt where worked examples stood in training."""

    remembered: int
    """Turns before a prompt, at most."""
    turns: list[Example] = field(default_factory=list)

    def prompt(self, text: str) -> Prompt:
        """Return the prompt for a text, with the last turns before it."""
        return Prompt(text, tuple(self.turns[-self.remembered :] if self.remembered else ()))

    def add(self, text: str, answer: str) -> None:
        """Remember a turn."""
        self.turns.append(Example(text, answer))


@dataclass(frozen=True, slots=True)
class Talk:
    """What the person at the terminal sees and types."""

    begin: Callable[[Ready], None]
    """Called when the learner is ready."""
    ask: Callable[[], str | None]
    """Returns what the person typed, or None at the end."""
    answer: Callable[[Sampled], None]
    refuse: Callable[[RequestError], None]


async def talk_to(
    config: Config, manifest: Manifest, folder: StateFolder | None, talk: Talk, *, temperature: float
) -> None:
    """Answer until the person ends. The policy is that of the newest checkpoint in `folder`. Without a folder, or a
    checkpoint, it is the model before any training.
    """
    recipe = recipe_of(config)
    conversation = Conversation(recipe.examples)
    with tempfile.TemporaryDirectory() as empty:
        options = learner_options(config, manifest, folder or StateFolder(Path(empty)))
        learner = Learner(replace(options, read_only=True))
        async with trio.open_nursery() as nursery:
            await nursery.start(learner.run)
            talk.begin(learner.ready)
            # Nothing else runs in this process, so reading may block it.
            while (text := talk.ask()) is not None:
                if not text.strip():
                    continue
                try:
                    [[sampled]] = await learner.generate(
                        [conversation.prompt(text)],
                        completions=1,
                        max_tokens=recipe.max_tokens,
                        seed=secrets.randbits(31),
                        temperature=temperature,
                        averaged=True,
                    )
                except RequestError as refusal:
                    talk.refuse(refusal)
                    continue
                conversation.add(text, sampled.text)
                talk.answer(sampled)
            nursery.cancel_scope.cancel()


def lines_of(sampled: Sampled) -> str:
    """Return an answer for a terminal, with a mark if it was cut at the limit."""
    text = "\n".join(printable(line) for line in sampled.text.strip().splitlines())
    return f"{text} […]" if sampled.finish == "length" else text
