"""A policy that lives in another program: what the training loop asks of it becomes work for a foreign trainer.

It keeps nothing of its own on disk. Its step is the last one that the batch log counted, so that a node which restarts
sends the trainer every stored batch that the trainer has not reported.
"""

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from sapo_node.contributors.text import completion
from sapo_node.feed.conversion import batch_of, messages_of, train_report
from sapo_node.feed.messages import Completed, GoBack, Group, Prompts, Refused, Report, Started, Work
from sapo_node.groups.messages import FilterName, Finish, GroupReport, RequestError, Sampled, TrainReport, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.processes.worker import WorkerFailed
from sapo_node.training.rollout import RoundFailed
from sapo_protocol import LocalError

KEPT_STEPS = 512
"""Steps after the newest checkpoint whose batches the node keeps. A trainer that saves less often cannot replay all."""

MAX_GROUP_TOKENS = 2**31
"""Tokens of one group in a report, at most: the sums of all reports fit into the database."""


class StaleAnswer(LocalError):
    """The answer is to work that the node no longer has."""


class WrongAnswer(LocalError):
    """The answer does not fit the work."""


@dataclass(slots=True, eq=False)
class _Pending:
    """Work that waits for its answer."""

    work: Work
    answered: trio.Event = field(default_factory=trio.Event)
    answer: Any = None
    failure: LocalError | None = None

    def end(self, answer: Any = None, failure: LocalError | None = None) -> None:
        self.answer, self.failure = answer, failure
        self.answered.set()


class RemotePolicy:
    """The foreign trainer, as the training loop sees it (`Policy`) and as the HTTP service sees it (all other methods).

    The methods of the service raise StaleAnswer or WrongAnswer, and change nothing then.
    """

    def __init__(
        self, *, step: int, newest: Callable[[], int], filters: Sequence[str], max_bytes: int, answer_seconds: float
    ) -> None:
        """`step` is the last step that was reported, and `newest` gives that of the newest stored batch. A round waits
        `answer_seconds` for its completions: peers ignore them later.
        """
        self._step = step
        self._newest = newest
        self._filters: tuple[FilterName, ...] = tuple(
            name for name in ("min-token-prob", "answer-likelihood") if name in filters
        )
        self.max_bytes = max_bytes
        """Of one completion."""
        self._answer_seconds = answer_seconds
        self._saved = 0
        self._claimed = 0
        """The step that a trainer started with, which it may never have reported."""
        self._pending: _Pending | None = None
        self._last = ""
        """The id of the work that was answered last: a trainer that lost the reply sends its answer again."""
        self._changed = trio.Event()
        self._asking = 0
        """Requests for work that wait."""
        self._asked = trio.Event()

    # What the training loop asks.

    @property
    def step(self) -> int:
        """The last step that is in the trainer's weights."""
        return self._step

    async def wanted(self) -> None:
        """Wait until a trainer asks for work. A round that began earlier could be too old when its prompts are read."""
        if not self._asking:
            await self._asked.wait()

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int, averaged: bool = False
    ) -> list[tuple[Sampled, ...]]:
        """Ask for G completions of each prompt. Raises RoundFailed where they come too late."""
        del seed, averaged  # the trainer samples by itself, and the node evaluates nothing of it
        chats = tuple(messages_of(prompt) for prompt in prompts)
        name = f"prompts/{secrets.token_hex(8)}"
        with trio.move_on_after(self._answer_seconds):
            answer: list[tuple[Sampled, ...]] = await self._ask(
                Work(prompts=Prompts(name, chats, completions, max_tokens, self.max_bytes))
            )
            return answer
        raise RoundFailed(
            f"the trainer did not complete the prompts within {self._answer_seconds:.0f} s; peers ignore later ones"
        )

    async def train(self, request: TrainRequest) -> TrainReport:
        """Ask for one step. A step without groups changes no weights, and is not asked for. The trainer gets no
        stand-ins.
        """
        started = trio.current_time()
        request = replace(request, groups=request.placed)
        report = Report("")
        if request.groups and request.step > self._claimed:
            report = await self._ask(Work(batch=batch_of(request, self._filters)))
        self._step = request.step
        return train_report(request, report, seconds=trio.current_time() - started)

    async def checkpoint(self) -> int:
        """The newest step that the trainer has on disk. It writes checkpoints when it likes."""
        return max(self._saved, self._step - KEPT_STEPS)

    async def keep_best(self, step: int, needed: Collection[int]) -> None:
        """The trainer keeps its best weights by itself."""
        del needed
        raise RequestError(f"the node does not evaluate the trainer's weights of step {step}")

    async def restore(self, step: int) -> None:
        """Ask the trainer to go back. Raises RequestError where it refuses."""
        if self._step > step:
            await self._ask(Work(go_back=GoBack(f"go-back/{step}/{secrets.token_hex(8)}", step)))

    # What the service brings from the trainer.

    async def work(self, seconds: float) -> Work:
        """The work that waits for the trainer. Waits so many seconds for some, and is empty if none comes."""
        self._asking += 1
        self._asked.set()
        self._asked = trio.Event()
        try:
            with trio.move_on_after(seconds):
                while self._unanswered is None:
                    await self._changed.wait()
        finally:
            self._asking -= 1
        return self._unanswered.work if self._unanswered else Work()

    def completed(self, answer: Completed) -> None:
        """Take in the completions of the prompts."""
        if (pending := self._answered(answer.id)) is None:
            return
        if (asked := pending.work.prompts) is None:
            raise WrongAnswer(f"{answer.id} asks for no completions")
        if len(answer.groups) != len(asked.prompts):
            raise WrongAnswer(f"groups has {len(answer.groups)} items; give one for each prompt: {len(asked.prompts)}")
        for number, group in enumerate(answer.groups):
            if len(group) != asked.completions:
                raise WrongAnswer(f"groups[{number}] has {len(group)} completions; give {asked.completions}")
            if any(each.logprobs and len(each.logprobs) != len(each.tokens) for each in group):
                raise WrongAnswer(f"groups[{number}] has a completion with other numbers of logprobs and of tokens")
        self._end(
            pending,
            [
                tuple(self._sampled(each.text, each.finish, each.tokens, each.logprobs) for each in group)
                for group in answer.groups
            ],
        )

    def reported(self, report: Report) -> None:
        """Take in what a step did."""
        if (pending := self._answered(report.id)) is None:
            return
        if (batch := pending.work.batch) is None:
            raise WrongAnswer(f"{report.id} asks for no report")
        if unknown := report.groups.keys() - {group.id for group in batch.groups}:
            raise WrongAnswer(f"the batch has no group {min(unknown)[:80]!r}")
        for group in batch.groups:
            _require_fit(group, report.groups.get(group.id, GroupReport()))
        if not 0 <= report.saved <= batch.step:
            raise WrongAnswer(f"saved is {report.saved}; give a step from 0 to {batch.step}")
        self._saved = max(self._saved, report.saved)
        self._end(pending, report)

    def refused(self, answer: Refused) -> None:
        """The trainer cannot go back."""
        if (pending := self._answered(answer.id)) is None:
            return
        if pending.work.go_back is None:
            raise WrongAnswer(f"{answer.id} cannot be refused")
        self._end(pending, failure=RequestError(f"the trainer refused: {answer.reason[:200]}"))

    def started(self, started: Started) -> None:
        """The trainer's weights hold exactly the steps up to this one: later ones are to be sent again."""
        step, newest = started.step, max(self._step, self._newest())
        if not 0 <= step <= newest:
            raise WrongAnswer(f"step is {step}; the node knows the steps from 0 to {newest}")
        pending = self._unanswered
        if pending and (back := pending.work.go_back) and step > back.step:
            raise StaleAnswer(f"the node waits for the weights of step {back.step}: load that checkpoint, or refuse")
        if step < self._step:
            self._step, self._saved = step, min(self._saved, step)
            if pending and not pending.work.go_back:
                pending.end(failure=WorkerFailed(f"the trainer started again at step {step}"))
        self._claimed = step
        if pending and (pending.work.go_back or (pending.work.batch and pending.work.batch.step <= step)):
            pending.end(Report(""))

    async def _ask(self, work: Work) -> Any:
        """Offer work until it is answered."""
        pending = self._pending = _Pending(work)
        self._changed.set()
        self._changed = trio.Event()
        try:
            await pending.answered.wait()
        finally:
            self._pending = None
        if pending.failure:
            raise pending.failure
        return pending.answer

    @property
    def _unanswered(self) -> _Pending | None:
        """The work that still waits for its answer."""
        return self._pending if self._pending and not self._pending.answered.is_set() else None

    def _answered(self, name: str) -> _Pending | None:
        """The work of this id; None where it has been answered and nothing came after it."""
        if self._unanswered and self._unanswered.work.id == name:
            return self._unanswered
        if name and name == self._last:
            return None
        raise StaleAnswer("the node does not wait for this answer; ask it for work")

    def _end(self, pending: _Pending, answer: Any = None, failure: LocalError | None = None) -> None:
        self._last = pending.work.id
        pending.end(answer, failure)

    def _sampled(self, text: str, finish: Finish, tokens: tuple[int, ...], logprobs: tuple[float, ...]) -> Sampled:
        kept = completion(text, finish, self.max_bytes)
        # The node cannot cut tokens. Without them the trainer trains on those of the text that was scored.
        return Sampled(kept.text, kept.finish, tokens, logprobs) if kept.text == text else replace(kept, tokens=())


def _require_fit(group: Group, report: GroupReport) -> None:
    """Raise WrongAnswer unless the report is one of this group."""
    if not (0 <= report.tokens <= MAX_GROUP_TOKENS and 0 <= report.masked <= MAX_GROUP_TOKENS):
        raise WrongAnswer(f"{group.id} has fewer than 0 or more than {MAX_GROUP_TOKENS:,} tokens")
    count = len(group.completions)
    if not {*report.rejected, *report.untrained} <= {*range(count)}:
        raise WrongAnswer(f"{group.id} has the completions 0 to {count - 1}; rejected or untrained names another")
