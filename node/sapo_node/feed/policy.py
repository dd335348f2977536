"""A policy in another program: each request of the training loop becomes work for a foreign trainer.

The policy keeps no file. Its step is the last one that the batch log counted. So a node that restarts sends the trainer
every stored batch that the trainer has not reported.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from sapo_node.contributors.text import completion
from sapo_node.feed.messages import (
    Batch,
    Completed,
    Completion,
    GoBack,
    GoBackRefused,
    Graded,
    Group,
    Message,
    Prompts,
    Started,
    StepReport,
    Work,
)
from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import (
    SOURCES,
    FilterName,
    GroupReport,
    RequestError,
    Sampled,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.prompt import Prompt, chat
from sapo_node.groups.record import is_cut
from sapo_node.processes.worker import WorkerFailed
from sapo_node.training.rollout import RoundFailed
from sapo_protocol import LocalError
from sapo_protocol.printable import excerpt

KEPT_STEPS = 512
"""Steps after the newest checkpoint whose batches the node keeps. A trainer that saves less often cannot replay all."""
MAX_TOKENIZER = 64
"""Most characters of the name of a tokenizer, which is stored with each completion."""


def messages_of(prompt: Prompt) -> tuple[Message, ...]:
    """A prompt as a chat."""
    return tuple(from_json(Message, each) for each in chat(prompt))


def batch_of(request: TrainRequest, filters: tuple[FilterName, ...]) -> Batch:
    """The message for a stored batch. Its id is the same after a restart of the node, because the report of the trainer
    may have been lost.
    """
    digest = hashlib.sha256(json.dumps(to_json(request)).encode()).hexdigest()[:16]
    return Batch(
        f"batch/{request.step}/{digest}",
        request.step,
        tuple(_group(group) for group in request.groups),
        request.objective,
        request.rate_scale,
        filters,
    )


def _group(group: TrainGroup) -> Group:
    unknown = (None,) * len(group.completions)
    levels, rewards = (group.levels.each, group.levels.rewards) if group.levels else (unknown, unknown)
    completions = tuple(
        Graded(
            text=each.text,
            finish=each.finish,
            advantage=advantage,
            level=level,
            reward=reward,
            tokens=each.tokens or (),
            logprobs=each.logprobs,
            tokenizer=each.tokenizer,
            masked=each.silent,
        )
        for each, advantage, level, reward in zip(group.completions, group.advantages, levels, rewards, strict=True)
    )
    return Group(
        id=group.id,
        source=group.source,
        messages=messages_of(Prompt(group.prompt, group.examples)),
        weight=group.weight,
        completions=completions,
        levels=group.levels.top if group.levels else 1,
        bounds=group.bounds,
    )


def train_report(request: TrainRequest, report: StepReport, *, seconds: float) -> TrainReport:
    """The trainer's report of a step in the form of the learner's report."""
    groups = {group.id: report.groups.get(group.id, GroupReport()) for group in request.groups}
    tokens = dict.fromkeys(SOURCES, 0)
    for group in request.groups:
        tokens[group.source] += groups[group.id].tokens
    local = [each for group in request.groups if group.source == "local" for each in group.completions]
    lengths = [len(each.tokens) for each in local if each.tokens]  # a trainer may send texts alone
    weights = [group.weight for group in request.groups if group.source == "external"]
    of_round = [group for group in request.groups if group.source != "replay"]
    return TrainReport(
        step=request.step,
        groups=groups,
        learning_rate=report.learning_rate,
        loss=report.loss,
        grad_norm=report.grad_norm,
        entropy=report.entropy,
        mean_length=_ratio(sum(lengths), len(lengths)),
        truncated=_ratio(sum(map(is_cut, local)), len(local)),
        zero_advantage=_ratio(sum(not any(each.advantages) for each in of_round), len(of_round)),
        external_weight=_ratio(sum(weights), len(weights)),
        local_tokens=tokens["local"] + tokens["replay"],
        external_tokens=tokens["external"],
        skipped=None if any(tokens.values()) else "the trainer reported no tokens",
        seconds=seconds,
    )


def _ratio(total: float, count: int) -> float | None:
    return total / count if count else None


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
    """The foreign trainer. The training loop calls the methods of `Policy`, the HTTP service all others.

    A method of the service that raises StaleAnswer or WrongAnswer changes nothing.
    """

    def __init__(
        self, *, step: int, newest: Callable[[], int], filters: Sequence[str], max_bytes: int, answer_seconds: float
    ) -> None:
        """`step` is the last reported step. `newest` gives the step of the newest stored batch. A round waits
        `answer_seconds` for its completions, because peers ignore later ones.
        """
        self._step = step
        self._newest = newest
        self._filters: tuple[FilterName, ...] = tuple(
            name for name in ("min-token-prob", "answer-likelihood") if name in filters
        )
        self.max_bytes = max_bytes
        """Most bytes of one completion."""
        self._answer_seconds = answer_seconds
        self._saved = 0
        self._claimed = 0
        """The step that a trainer started with. It may never have reported this step."""
        self._pending: _Pending | None = None
        self._last = ""
        """The id of the last answered work. A trainer that lost the reply sends its answer again."""
        self._changed = trio.Event()
        self._asking = 0
        """Number of waiting requests for work."""
        self._asked = trio.Event()

    # Methods for the training loop.

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
        """Ask for G completions of each prompt. Raises RoundFailed if they come too late."""
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
        """Ask for one step, without stand-ins. A step without groups changes no weights, so the trainer gets none."""
        started = trio.current_time()
        request = replace(request, groups=request.placed)
        report = StepReport("")
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
        """Ask the trainer to go back. Raises RequestError if it refuses."""
        if self._step > step:
            await self._ask(Work(go_back=GoBack(f"go-back/{step}/{secrets.token_hex(8)}", step)))

    # Methods for the HTTP service.

    async def work(self, seconds: float) -> Work:
        """The work for the trainer. Waits at most `seconds` for it, and is empty if there is none then."""
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

    def reported(self, report: StepReport) -> None:
        """Take in the report of a step."""
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

    def refused(self, answer: GoBackRefused) -> None:
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
            pending.end(StepReport(""))

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
        """The work with this id; None if it is the last work and was answered."""
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
