"""Load on a live node: `locust -f .../load/locustfile.py --web-host 127.0.0.1 --host MULTIADDR`.

Each user is a libp2p publisher with a key of its own that sends rollouts at a set rate, of a set size; some users send
nothing that is valid. What locust calls a response is the message's way, from when it was due, through the target's
ingest and on to a peer that listens: its delivery. A bad one fails if it is delivered, or if it cannot be sent. Run it
against your own node.
"""

import itertools
import json
import logging
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import gevent
from gevent.event import AsyncResult
from gevent.subprocess import Popen
from locust import User, events, stats, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import LocalRunner, Runner

from sapo_adversary.load.messages import BAD, VALID
from sapo_protocol import LocalError, load_manifest

log = logging.getLogger(__name__)

_START_SECONDS = 60
_END_SECONDS = 30


@events.init_command_line_parser.add_listener
def _arguments(parser: LocustArgumentParser) -> None:
    group = parser.add_argument_group("sapo-node")
    group.add_argument("--swarm", default="starter", help="A shipped manifest, or the path of one. (default: starter)")
    group.add_argument("--message-bytes", type=int, default=32_768, help="Size of a message, about. (default: 32768)")
    group.add_argument("--per-second", type=float, default=1.0, help="Messages of each user. (default: 1)")
    group.add_argument("--bad-share", type=float, default=0.0, help="Of users that send nothing valid. (default: 0)")
    group.add_argument(
        "--keys-from",
        default="load",
        help="Words that the users' keys follow from; `sapo-adversary load-keys` names them. (default: load)",
    )


def _require_bounds(options: Namespace) -> None:
    """End locust with one line where a number is outside of its bounds."""
    bounds = {"message_bytes": (1, 1_000_000), "per_second": (0.001, 10_000), "bad_share": (0, 1)}
    for name, (least, most) in bounds.items():
        value = getattr(options, name)
        if not least <= value <= most:
            raise SystemExit(f"--{name.replace('_', '-')} is {value}; give a number from {least} to {most}")


def _require_swarm(swarm: str) -> None:
    """End locust with one line if there is no such manifest."""
    try:
        load_manifest(swarm)
    except LocalError as error:
        raise SystemExit(str(error)) from None


class Helper:
    """The publishers' process and its events: libp2p and gevent cannot run in one process."""

    def __init__(self, environment: Environment) -> None:
        options = environment.parsed_options
        assert options is not None
        if not environment.host or "/p2p/" not in environment.host:
            raise SystemExit("give --host the full address of a node, as it prints it: /ip4/.../tcp/.../p2p/...")
        _require_bounds(options)
        _require_swarm(options.swarm)
        self._environment = environment
        self._process = Popen(
            [
                sys.executable,
                "-m",
                "sapo_adversary.load.publishers",
                environment.host,
                options.swarm,
                options.keys_from,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._stopped = False
        self._refs = itertools.count()
        self._sent: dict[int, tuple[str, int]] = {}
        """Kind and size of each message on its way, by reference."""
        self._joining: dict[int, AsyncResult[bool]] = {}
        self._ready: AsyncResult[bool] = AsyncResult()
        gevent.spawn(self._read)

    def wait(self) -> None:
        """Wait for the connection with the target, and end locust if there is none."""
        if not self._ready.get(timeout=_START_SECONDS):
            raise SystemExit(
                f"no connection with {self._environment.host}: is the node running, and may it be reached?"
            )

    def join(self, user: int) -> None:
        """Connect a publisher. Raises StopUser if the target refuses it."""
        self._joining[user] = AsyncResult()
        self._tell({"join": user})
        if not self._joining[user].get(timeout=_START_SECONDS):
            refused = ConnectionError("the target does not take this peer: full, or it banned the key earlier")
            self._environment.events.request.fire(
                request_type="connect", name="target", response_time=None, response_length=0, exception=refused
            )
            raise StopUser

    def publish(self, user: int, kind: str, size: int, due: float) -> None:
        """Send one message that was due at this time of `time.monotonic`; its delivery is reported later."""
        ref = next(self._refs)
        self._sent[ref] = (kind, size)
        self._tell({"publish": user, "kind": kind, "bytes": size, "ref": ref, "due": due})

    def stop(self) -> None:
        """End the process when no message is under way."""
        self._stopped = True
        self._process.stdin.close()
        self._process.wait(timeout=_END_SECONDS)
        # Locust writes its CSV files at this interval and not at the end, and lost messages are decided last.
        gevent.sleep(1.5 * stats.CSV_STATS_INTERVAL_SEC)

    def _tell(self, line: dict[str, Any]) -> None:
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise StopUser from None  # _read says why

    def _read(self) -> None:
        for line in self._process.stdout:
            event = json.loads(line)
            if "ready" in event:
                self._ready.set(True)
            elif "joined" in event:
                self._joining[event["joined"]].set(event["welcome"])
            elif "ref" in event:
                self._count(event)
        if not self._ready.ready():
            self._ready.set(False)
        elif not self._stopped:
            log.error("the publishers' process ended; it says above why")
            self._environment.process_exit_code = 1
            assert self._environment.runner is not None
            self._environment.runner.quit()

    def _count(self, event: dict[str, Any]) -> None:
        kind, size = self._sent.pop(event["ref"])
        match event:
            case {"unsent": why}:
                wrong = why
            case {"lost": why}:
                wrong = why if kind in VALID else None
            case _:
                wrong = None if kind in VALID else "was accepted"
        self._environment.events.request.fire(
            request_type=kind,
            name=f"{size} bytes",
            response_time=1000 * event["seconds"] if "seconds" in event else None,
            response_length=size,
            exception=RuntimeError(wrong) if wrong else None,
        )


_helpers: list[Helper] = []


@events.init.add_listener
def _require_one_process(runner: Runner, **_: Any) -> None:
    """End locust where other processes would count users from 0, too: two would sign with one key, and be banned."""
    if not isinstance(runner, LocalRunner):
        raise SystemExit("this load test runs in one process: leave out --processes, --master and --worker")


@events.test_start.add_listener
def _start(environment: Environment, **_: Any) -> None:
    Publisher.numbers = itertools.count()  # the keys that the target trusts, in each test on locust's page
    _helpers.append(Helper(environment))
    _helpers[-1].wait()


@events.quitting.add_listener
@events.test_stop.add_listener
def _stop(environment: Environment, **_: Any) -> None:
    while _helpers:
        _helpers.pop().stop()
        if not environment.stats.total.num_requests:
            log.error("no message was sent: give a longer --run-time, and see that the node is running")
            environment.process_exit_code = 1


class Publisher(User):
    """A peer that publishes at a steady rate, whatever becomes of its messages."""

    numbers: Iterator[int] = itertools.count()

    def on_start(self) -> None:
        """Connect, and wait for the first message to be due: a key has no counter for it at once."""
        options = self.environment.parsed_options
        self._options = options
        self._number = next(Publisher.numbers)
        share = options.bad_share
        self._kinds = itertools.cycle(BAD if int((self._number + 1) * share) > int(self._number * share) else VALID)
        _helpers[0].join(self._number)
        self._due = time.monotonic()
        gevent.sleep(self.wait_time())

    def wait_time(self) -> float:
        """Until the next message is due: so many a second, at times that do not depend on those before."""
        self._due += 1 / self._options.per_second
        return max(0.0, self._due - time.monotonic())

    @task
    def publish(self) -> None:
        """One message."""
        _helpers[0].publish(self._number, next(self._kinds), self._options.message_bytes, self._due)
