"""Writes the curves of a node to other programs: JSON lines, TensorBoard, Trackio or Weights & Biases.

One child process of low priority writes to all targets (`python -m sapo_node.observability.curves REQUEST`). It follows
the node's database and changes nothing in it. So a library that is slow, that hangs or that dies stops no round. A
target that fails is left out from then on, and the node tells why. A target that hangs holds up the other targets.

If TRL's GRPOTrainer has a curve, the name is TRL's; all other names begin with `swarm/`. `scripts/reference.py` prints
these names in the reference of the site.
"""

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import stdev
from typing import Any

import trio

from sapo_node.groups import book
from sapo_node.observability.explain import facts_of
from sapo_node.observability.history import History
from sapo_node.observability.stored import Round
from sapo_node.processes.child import ChildProcess, listen
from sapo_node.processes.extras import command_for
from sapo_node.storage.database import Database
from sapo_protocol import LocalError

STOP_SECONDS = 5.0
"""Seconds that the targets have to write the last points when the node stops."""
COMPLETIONS_EVERY = 10
"""Rounds from one table of completions to the next. The first round has one, too."""
TABLE = "completions"
COLUMNS = ("step", "prompt", "completion", "reward", "advantage")
"""Columns of TABLE."""
_INTERVAL = 2.0
"""Seconds between two looks at the database."""
_NICENESS = 10
"""Gossip and verification go first."""
_TENSOR_OF_STRINGS = 7
"""DT_STRING of TensorBoard."""

Metrics = Mapping[str, Any]
"""The metrics of a round as the database holds them."""


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


CURVES: Mapping[str, tuple[str, Callable[[Metrics], Any]]] = {
    "reward": ("mean reward of all local completions", lambda r: r["reward"]),
    "frac_reward_zero_std": (
        "share of the local groups without an advantage",
        lambda r: _share(r["local"] - r["informative"], r["local"]),
    ),
    "completions/mean_length": ("mean length of local completions, in tokens", lambda r: r.get("mean_length")),
    "completions/clipped_ratio": (
        "share of local completions that were cut at the limit",
        lambda r: r.get("truncated"),
    ),
    "entropy": ("mean entropy over local tokens trained on, in nats", lambda r: r.get("entropy")),
    "loss": ("GRPO loss of the whole batch", lambda r: r.get("loss")),
    "grad_norm": ("L2 norm of the gradient before clipping", lambda r: r.get("grad_norm")),
    "learning_rate": ("learning rate of the step", lambda r: r.get("learning_rate")),
    "step_time": ("wall time of the round, in seconds", lambda r: sum(r["seconds"].values())),
    "swarm/external_groups": ("external groups trained on", lambda r: r["external"]),
    "swarm/external_token_share": (
        "share of the trained tokens that came from peers",
        lambda r: _share(r["external_tokens"], r["external_tokens"] + r["local_tokens"]),
    ),
    "swarm/external_weight": ("mean weight in the loss of the external groups", lambda r: r.get("external_weight")),
    "swarm/strangers_share": (
        "part of the external groups that strangers may fill",
        lambda r: r.get("strangers_share"),
    ),
    "swarm/masked_tokens": (
        "tokens of correct external completions that filters masked",
        lambda r: r.get("masked_tokens"),
    ),
    "swarm/refused_groups": ("groups of the batch that the learner refused", lambda r: r.get("refused")),
    "swarm/rate_scale": ("factor that alarms left on the learning rate", lambda r: r.get("rate_scale")),
    "swarm/published": ("1 if the round was shared, else 0", lambda r: r.get("published")),
}
"""Curves with one point per round: the meaning, and the value in the metrics. None means that there is no value."""
REWARD_STD = "reward_std"
"""Standard deviation of the rewards of all local completions, with Bessel's correction as in TRL."""
EVALUATION: Mapping[str, str] = {
    "eval_reward": "held-out pass@1, the mean of tasks",
    "swarm/eval_low": "lower bound of its 95 % interval",
    "swarm/eval_high": "upper bound of its 95 % interval",
    "swarm/eval/TASK": "held-out pass@1 of a task",
}
"""Curves with one point per evaluation."""


@dataclass(frozen=True, slots=True)
class Request:
    """The order of a node to its child process."""

    targets: tuple[str, ...]
    database: str
    """The path of the node's database."""
    folder: str
    """The folder for targets that write files."""
    project: str
    name: str
    round: int
    """Step of the last round that is not to be written."""
    evaluation: int
    """Step of the last evaluation that is not to be written; -1 if there is none."""


@dataclass(frozen=True, slots=True)
class Point:
    """The values of one round or of one evaluation."""

    step: int
    at: float
    """Unix time."""
    values: dict[str, float]
    completions: tuple[tuple[Any, ...], ...] = ()
    """Rows of TABLE; empty if this point has no table."""


Write = Callable[[Point], None]


def require_installed(targets: Iterable[str]) -> None:
    """Raise LocalError if the library of a target is missing."""
    for target in targets:
        if target != "jsonl" and find_spec(target) is None:
            raise LocalError(f"--log-to {target} needs {target}, which is missing: {command_for(target)}")


async def write_curves(request: Request, tell: Callable[[str], None]) -> None:
    """Write the curves until cancelled. `tell` gets a notice for each target that fails."""
    left = list(request.targets)

    def failed(line: str) -> None:
        target, _, reason = line.partition(": ")
        left.remove(target)
        tell(f"no more curves go to {target} ({reason}); the node goes on without")

    child = ChildProcess([sys.executable, "-P", "-m", "sapo_node.observability.curves", json.dumps(asdict(request))])
    try:
        await listen(child.stdout, failed)
        if left:
            tell(
                f"no more curves go to {', '.join(left)} (the process that writes them died); the node goes on without"
            )
    finally:
        with trio.CancelScope(shield=True):
            await child.end(grace=STOP_SECONDS)


class Follower:
    """Returns each round and each evaluation of a database once."""

    def __init__(self, database: Database, *, round_: int, evaluation: int) -> None:
        """Begin after this round and this evaluation, which are steps."""
        self._history = History(database)
        self._database = database
        self._round = round_
        self._evaluation = evaluation

    def new(self) -> list[Point]:
        """Return the points since the last call. The evaluation after a round follows the round."""
        rounds = [self._of_round(each) for each in self._history.rounds_after(self._round)]
        results = [each for each in self._history.evaluations() if each["step"] > self._evaluation]
        evaluations = [Point(each["step"], each["at"], of_evaluation(each)) for each in results]
        self._round = max([self._round, *(point.step for point in rounds)])
        self._evaluation = max([self._evaluation, *(point.step for point in evaluations)])
        # The sort is stable: of one step, the round comes first.
        return sorted([*rounds, *evaluations], key=lambda point: point.step)

    def _of_round(self, metrics: Round) -> Point:
        step = metrics["step"]
        groups = book.local_round(self._database, metrics["epoch"], metrics["counter"])
        rewards = [reward for group in groups for reward in group.levels.rewards]
        shown = step == 1 or step % COMPLETIONS_EVERY == 0
        rows = [
            (step, group.prompt, each["text"], reward, each.get("advantage", 0.0))
            for group in (groups if shown else ())
            for each, reward in zip(facts_of(group).get("completions", ()), group.levels.rewards, strict=False)
        ]
        return Point(step, metrics["at"], of_round(metrics, rewards), tuple(rows))


def of_round(metrics: Metrics, rewards: Sequence[float]) -> dict[str, float]:
    """Return the values of a round. `rewards`, of all local completions, is empty if the book forgot them."""
    values = {name: read(metrics) for name, (_, read) in CURVES.items()}
    values[REWARD_STD] = stdev(rewards) if len(rewards) > 1 else None
    return {name: float(value) for name, value in values.items() if value is not None}


def of_evaluation(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of an evaluation on held-out prompts."""
    tasks = {f"swarm/eval/{task}": figures["pass_at_1"] for task, figures in result["per_task"].items()}
    bounds = {"swarm/eval_low": result["low"], "swarm/eval_high": result["high"]}
    return {"eval_reward": result["pass_at_1"], **bounds, **tasks}


@contextmanager
def _json_lines(request: Request) -> Iterator[Write]:
    """Append a line per point to curves.jsonl, and a line per completion to completions.jsonl."""
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "curves.jsonl").open("a", buffering=1) as curves,
        (folder / f"{TABLE}.jsonl").open("a", buffering=1) as completions,
    ):

        def write(point: Point) -> None:
            curves.write(json.dumps({"step": point.step, "at": point.at, **point.values}) + "\n")
            for row in point.completions:
                completions.write(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n")

        yield write


@contextmanager
def _tensorboard(request: Request) -> Iterator[Write]:
    """Write event files, which `tensorboard --logdir FOLDER` shows. The table is text."""
    proto = "tensorboard.compat.proto"
    event, summary, tensor = (import_module(f"{proto}.{name}_pb2") for name in ("event", "summary", "tensor"))
    writer = import_module("tensorboard.summary.writer.event_file_writer")
    file = writer.EventFileWriter(str(Path(request.folder) / "tensorboard"))

    def write(point: Point) -> None:
        made = summary.Summary()
        for name, value in point.values.items():
            made.value.add(tag=name, simple_value=value)
        if point.completions:
            text = made.value.add(tag=TABLE)
            text.metadata.plugin_data.plugin_name = "text"
            markdown = _markdown(point.completions).encode()
            text.tensor.CopyFrom(tensor.TensorProto(dtype=_TENSOR_OF_STRINGS, string_val=[markdown]))
            text.tensor.tensor_shape.dim.add(size=1)
        file.add_event(event.Event(wall_time=point.at, step=point.step, summary=made))
        file.flush()

    with closing(file):
        yield write


def _markdown(rows: tuple[tuple[Any, ...], ...]) -> str:
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (COLUMNS, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|---" * len(COLUMNS) + "|", *lines[1:]])


@contextmanager
def _trackio(request: Request) -> Iterator[Write]:
    """Write to a project of Trackio on this machine, which `trackio show` shows. A restart continues the run."""
    library = import_module("trackio")
    library.init(project=request.project, name=request.name, resume="allow")
    try:
        yield lambda point: library.log(_with_table(library, point), step=point.step)
    finally:
        library.finish()


@contextmanager
def _wandb(request: Request) -> Iterator[Write]:
    """Write to a run of Weights & Biases. Its own variables, such as WANDB_MODE, hold. A restart continues the run."""
    Path(request.folder).mkdir(parents=True, exist_ok=True)
    library = import_module("wandb")
    run = library.init(
        project=request.project,
        name=request.name,
        id=request.name,
        dir=request.folder,
        resume="allow",
        save_code=False,
    )
    try:
        yield lambda point: run.log(_with_table(library, point), step=point.step)
    finally:
        run.finish()


def _with_table(library: Any, point: Point) -> dict[str, Any]:
    if not point.completions:
        return dict(point.values)
    table = library.Table(columns=list(COLUMNS), data=[list(row) for row in point.completions])
    return {**point.values, TABLE: table}


TARGETS: Mapping[str, Callable[[Request], Any]] = {
    "jsonl": _json_lines,
    "tensorboard": _tensorboard,
    "trackio": _trackio,
    "wandb": _wandb,
}


def _follow(request: Request, failed: Callable[[str, Exception], None]) -> None:
    """Write points until standard input ends, and then those that are still missing."""
    with closing(Database(Path(request.database), (), read_only=True)) as database, ExitStack() as stack:
        follower = Follower(database, round_=request.round, evaluation=request.evaluation)
        writers: dict[str, Write] = {}

        def attempt(target: str, action: Callable[[], Any]) -> None:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - a library may fail in any way
                writers.pop(target, None)
                failed(target, error)

        def begin(target: str) -> None:
            opened = ExitStack()
            writers[target] = opened.enter_context(TARGETS[target](request))
            stack.callback(attempt, target, opened.close)

        for target in request.targets:
            attempt(target, partial(begin, target))
        has_ended = False
        while writers and not has_ended:
            has_ended = bool(select.select([0], [], [], _INTERVAL)[0])
            for point in follower.new():
                for target, write in list(writers.items()):
                    attempt(target, partial(write, point))


def main() -> None:
    """Serve the request in the first argument. Each line of output names a target that failed, and why."""
    report = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # libraries print
    os.dup2(nowhere, 2)
    os.nice(_NICENESS)
    # The node ends this process by closing its input, so that the last points are written.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def failed(target: str, error: Exception) -> None:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        report.write(f"{target}: {line}\n")

    _follow(Request(**json.loads(sys.argv[1])), failed)


if __name__ == "__main__":
    main()
