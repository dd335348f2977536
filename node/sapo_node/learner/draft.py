"""A completion that grows token by token. It knows when it ends: after an end token of the model, which is no part of
its text, with the closing tag of its answer, or where the swarm keeps no more of it.
"""

from dataclasses import dataclass, field

from sapo_node.groups.messages import Finish, Sampled
from sapo_node.learner.encoding import within
from sapo_node.learner.model import Policy

DECIMALS = 6
"""Of a log-probability. More say nothing in float32, and would make a stored batch a third larger."""
LOOK_EVERY = 32
"""Tokens between two looks at the bytes of a text: each look decodes the whole text."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """One completion that is being sampled."""

    max_bytes: int
    """Bytes of UTF-8 that the swarm keeps of its text."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    end: tuple[int, float] | None = None
    """The end token and its log-probability, if the completion has ended with one."""
    stopped: bool = False

    def add(self, policy: Policy, token: int, logprob: float) -> None:
        """Add the next token, and stop if the completion ends with it."""
        logprob = round(logprob, DECIMALS)
        if token in policy.ends:
            self.end, self.stopped = (token, logprob), True
            return
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.stopped = policy.closes_answer(self.tokens) or self._is_full(policy)

    def _is_full(self, policy: Policy) -> bool:
        look = len(self.tokens) % LOOK_EVERY == 0
        return look and len(policy.decode(self.tokens).encode()) > self.max_bytes

    def finished(self, policy: Policy) -> Sampled:
        """Return the completion. A text over `max_bytes` is cut, and its finish reason is `length`."""
        tokens, text = within(self.tokens, self.max_bytes, policy.decode)
        whole = self.stopped and len(tokens) == len(self.tokens)
        finish: Finish = "stop" if whole else "length"
        end = self.end if whole else None
        return Sampled(text, finish, tuple(tokens), tuple(self.logprobs[: len(tokens)]), end=end)
