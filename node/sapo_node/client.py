"""Makes a trainer of your own a member of a swarm, through the feed of a node that runs beside it.

    feed = Feed("~/.local/state/sapo-node/.../feed.json")     # `sapo-node start --no-train --feed` prints the path
    while True:
        batch = feed.next_batch(sample)                       # `sample(prompts)` gives G completions of each prompt
        feed.report(batch, train(batch), saved=step)          # `train(batch)` gives a GroupReport of each group

The client needs no torch and no libp2p. It waits while the node restarts. A node that lost a report sends its batch
again: the client then repeats the report, and the trainer does not see the batch a second time.

A feed serves one trainer. A `Feed` has the feed of its node from its first request until `close`, or until its process
ends. A thread tells the node that the trainer is alive, also in a long step.
"""

import json
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx

from sapo_node.feed.access import MAX_WAIT, TRAINER_HEADER, read_access
from sapo_node.feed.checkpoints import mark, newest
from sapo_node.feed.messages import (
    Batch,
    Completed,
    Completion,
    Done,
    GoBack,
    GoBackRefused,
    Graded,
    Group,
    Prompts,
    Started,
    StepReport,
    Work,
)
from sapo_node.feed.rows import LogProbs, Row, completions_of, prompt_ids, reports_of, rows_of
from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.messages import GroupReport
from sapo_protocol import LocalError
from sapo_protocol.files import expanded

__all__ = [
    "Batch",
    "Completion",
    "Feed",
    "FeedError",
    "Graded",
    "Group",
    "GroupReport",
    "LogProbs",
    "Prompts",
    "Row",
    "StepBack",
    "completions_of",
    "mark",
    "newest",
    "prompt_ids",
    "reports_of",
    "rows_of",
]

_REQUEST_SECONDS = MAX_WAIT + 30.0
_RETRY_SECONDS = 1.0
_END_SECONDS = 5.0
"""Seconds for which `close` waits for the node."""
_RENEW_SECONDS = 10.0
"""Seconds between two renewals of the lease, far less than LEASE_SECONDS."""

Sample = Callable[[Prompts], Sequence[Sequence[Completion]]]
"""Samples G completions of each prompt, in the order of the prompts."""
_Answer = TypeVar("_Answer")


class FeedError(LocalError):
    """The node refused a request, or could not be reached for too long."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status
        """Status of HTTP; 0 if the node could not be reached."""


class StepBack(LocalError):
    """The trainer must load its checkpoint of `step`, delete all later ones, and call `Feed.started(step)`.

    A trainer that cannot calls `Feed.refuse` and goes on.
    """

    def __init__(self, work: GoBack) -> None:
        super().__init__(
            f"the node takes back the steps after {work.step}: load the checkpoint of step {work.step}, delete later "
            f"ones and call started({work.step}); a trainer that cannot calls refuse"
        )
        self.step = work.step
        self.id = work.id


class Feed:
    """The feed of one node."""

    def __init__(self, file: str | Path, *, patience: float = 600.0) -> None:
        """`file` is the node's `feed.json`. The client tries for `patience` seconds to reach a node that is away."""
        self._file = Path(expanded(str(file)))
        self._patience = patience
        self._reported = StepReport("")
        name = {TRAINER_HEADER: secrets.token_hex(8)}
        self._client = httpx.Client(trust_env=False, headers=name)  # no proxy sees the token
        lease = self._client, self._file, threading.Event()
        self._renewing = threading.Thread(target=_renew_lease, args=lease, daemon=True, name="lease of a feed")
        self.close = weakref.finalize(self, _end_lease, self._renewing, *lease)
        """Let the next trainer in. The end of the process does so, too, unless it is killed."""

    def started(self, step: int) -> None:
        """Tell the node which step the trainer's weights are of. A trainer that starts from a checkpoint calls this.

        The node sends the batches of later steps again. Raises StepBack if it takes steps back that are in the weights.
        """
        self._reported = StepReport("")
        try:
            self._post("started", Started(step))
        except FeedError as error:
            if error.status != httpx.codes.CONFLICT or not (back := self._work().go_back):
                raise
            raise StepBack(back) from error

    def next_batch(self, sample: Sample) -> Batch:
        """Play the node's next round, and return what to train on.

        The node may first send batches again that are not in the weights. Raises StepBack where steps are taken back.
        """
        while True:
            work = self._work()
            if work.go_back:
                raise StepBack(work.go_back)
            if work.batch and work.batch.id == self._reported.id:
                self._post("report", self._reported)
            elif work.batch:
                return work.batch
            elif work.prompts:
                self._complete(work.prompts, sample(work.prompts))

    def report(
        self,
        batch: Batch,
        groups: Mapping[str, GroupReport],
        *,
        saved: int = 0,
        learning_rate: float = 0.0,
        loss: float | None = None,
        grad_norm: float | None = None,
        entropy: float | None = None,
    ) -> None:
        """Tell the node what the step did: tokens that were trained on, by the id of each group.

        `saved` is the newest step whose weights are in a checkpoint on disk.
        """
        self._reported = StepReport(batch.id, groups, saved, learning_rate, loss, grad_norm, entropy)
        self._post("report", self._reported)

    def refuse(self, step_back: StepBack, reason: str) -> None:
        """Tell the node that the trainer cannot go back. The accused groups then stay in its weights."""
        self._post("refused", GoBackRefused(step_back.id, reason))

    def _complete(self, prompts: Prompts, groups: Sequence[Sequence[Completion]]) -> None:
        if len(groups) != len(prompts.prompts):
            raise FeedError(f"sample returned {len(groups)} groups for {len(prompts.prompts)} prompts; return one each")
        try:
            for number, group in enumerate(groups):
                self._post("completions", Completed(prompts.id, number, tuple(group)))
        except FeedError as error:
            if error.status != httpx.codes.CONFLICT or self._work().id == prompts.id:
                raise
            # The node restarted, or the completions came too late: its next round has other prompts.

    def _work(self) -> Work:
        return self._ask(Work, "GET", f"work?wait={MAX_WAIT:g}")

    def _post(self, path: str, body: Any) -> None:
        self._ask(Done, "POST", path, to_object(body))

    def _ask(self, kind: type[_Answer], method: str, path: str, body: Any = None) -> _Answer:
        """One request, again while the node is away: it restarts at another address."""
        if self._renewing.ident is None:
            self._renewing.start()
        deadline = time.monotonic() + self._patience
        while True:
            try:
                reply = _request(self._client, self._file, method, path, body)
            except httpx.InvalidURL as error:
                raise FeedError(f"{self._file} holds no address of a node; start the node again") from error
            except httpx.TransportError as error:
                if time.monotonic() > deadline:
                    raise FeedError(f"the node of {self._file} does not answer: {error}") from error
                time.sleep(_RETRY_SECONDS)
                continue
            if reply.status_code != httpx.codes.OK:
                raise FeedError(reply.text[:500], reply.status_code)
            try:
                return from_json(kind, reply.json())
            except (ValueError, RecursionError) as error:
                raise FeedError(f"what answers at {reply.url} is no feed; is the node running?") from error


def _request(
    client: httpx.Client, file: Path, method: str, path: str, body: Any = None, *, timeout: float = _REQUEST_SECONDS
) -> httpx.Response:
    access = read_access(file)
    headers = {"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"}
    # httpx would write UTF-8, which has no half of a surrogate pair; an odd tokenizer may decode to one
    content = None if body is None else json.dumps(body)
    return client.request(method, f"{access.url}/v1/{path}", content=content, headers=headers, timeout=timeout)


def _renew_lease(client: httpx.Client, file: Path, ended: threading.Event) -> None:
    """Tell the node that this trainer is alive. A refusal shows at the next request of the trainer itself."""
    while not ended.wait(_RENEW_SECONDS):
        with suppress(httpx.HTTPError, httpx.InvalidURL, LocalError):
            _request(client, file, "POST", "lease")


def _end_lease(renewing: threading.Thread, client: httpx.Client, file: Path, ended: threading.Event) -> None:
    ended.set()
    if renewing.ident is None:
        return  # nothing was asked
    if renewing is not threading.current_thread():
        renewing.join(_END_SECONDS)
    with suppress(httpx.HTTPError, httpx.InvalidURL, LocalError):
        _request(client, file, "DELETE", "lease", timeout=_END_SECONDS)
    client.close()
