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
from sapo_node.feed.messages import Completed, Completion, GoBack, Group, Prompts, Refused, Report, Started, Work
from sapo_node.groups.messages import FilterName, GroupReport, RequestError, Sampled, TrainReport, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.processes.worker import WorkerFailed
from sapo_node.training.rollout import RoundFailed
from sapo_protocol import LocalError
from sapo_protocol.printable import excerpt

KEPT_STEPS = 512
"""Steps after the newest checkpoint whose batches the node keeps. A trainer that saves less often cannot replay all."""


MAX_TOKENIZER = 64
"""Characters of the name of a tokenizer, at most: it is stored with each completion."""


class StaleAnswer(LocalError):
    """The answer is to work that the node no longer has."""


class WrongAnswer(LocalError):
    """The answer does not fit the work."""


@dataclass(slots=True, eq=False)
class _Pending:
    """Work that waits for its answer."""

    work: Work
    answered: trio.Event = field(default_factory=trio.Event)
    groups: dict[int, tuple[Sampled, ...]] = field(default_factory=dict)
    """The completions that have come, by the number of their prompt."""
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
        """Take in the completions of one prompt."""
        if (pending := self._answered(answer.id)) is None:
            return
        if (asked := pending.work.prompts) is None:
            raise WrongAnswer(f"{answer.id} asks for no completions")
        if answer.prompt >= len(asked.prompts):
            raise WrongAnswer(f"prompt is {answer.prompt}; give a number from 0 to {len(asked.prompts) - 1}")
        if len(answer.completions) != asked.completions:
            raise WrongAnswer(
                f"prompt {answer.prompt} has {len(answer.completions)} completions; give {asked.completions}"
            )
        for each in answer.completions:
            _require_tokens(each, asked.max_tokens)
        pending.groups[answer.prompt] = tuple(map(self._sampled, answer.completions))
        if len(pending.groups) == len(asked.prompts):
            self._end(pending, [pending.groups[number] for number in range(len(asked.prompts))])

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
        if report.saved > batch.step:
            raise WrongAnswer(f"saved is {report.saved}; give a step from 0 to {batch.step}")
        self._saved = max(self._saved, report.saved)
        self._end(pending, report)

    def refused(self, answer: Refused) -> None:
        """The trainer cannot go back."""
        if (pending := self._answered(answer.id)) is None:
            return
        if pending.work.go_back is None:
            raise WrongAnswer(f"{answer.id} cannot be refused")
        self._end(pending, failure=RequestError(f"the trainer refused: {excerpt(answer.reason, 200)}"))

    def started(self, started: Started) -> None:
        """The trainer's weights hold exactly the steps up to this one: later ones are to be sent again."""
        step, newest = started.step, max(self._step, self._newest())
        if step > newest:
            raise StaleAnswer(f"step is {step}; the node knows the steps from 0 to {newest}")
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

    def _sampled(self, given: Completion) -> Sampled:
        kept = completion(given.text, given.finish, self.max_bytes)
        if kept.text == given.text:
            return replace(kept, tokens=given.tokens, logprobs=given.logprobs, tokenizer=given.tokenizer)
        # The node cannot cut tokens. Without them the trainer trains on those of the text that was scored.
        return replace(kept, tokens=())


def _require_tokens(given: Completion, most: int) -> None:
    """Raise WrongAnswer unless the tokens of a completion can be stored."""
    if len(given.tokens) > most:
        raise WrongAnswer(f"a completion has {len(given.tokens)} tokens; give at most {most}")
    if given.logprobs and len(given.logprobs) != len(given.tokens):
        raise WrongAnswer(f"a completion has {len(given.logprobs)} logprobs of {len(given.tokens)} tokens")
    if given.tokens and not 1 <= len(given.tokenizer) <= MAX_TOKENIZER:
        raise WrongAnswer(
            f"a completion has tokens; name their tokenizer in `tokenizer`, in at most {MAX_TOKENIZER} characters"
        )


def _require_fit(group: Group, report: GroupReport) -> None:
    """Raise WrongAnswer unless the report is one of this group."""
    count = len(group.completions)
    if not {*report.rejected, *report.untrained} <= {*range(count)}:
        raise WrongAnswer(f"{group.id} has the completions 0 to {count - 1}; rejected or untrained names another")
