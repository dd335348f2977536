"""The child process of one target: writes new points every few seconds, until its input ends.

Its only output is one line that says why it ended early. Libraries print, so their output goes nowhere.
"""

import json
import os
import select
import signal
import sys
from contextlib import closing
from pathlib import Path

from sapo_node.groups.codec import from_json
from sapo_node.observability.curves.follow import Follower
from sapo_node.observability.curves.request import FollowRequest
from sapo_node.observability.curves.targets import TARGETS
from sapo_node.storage.database import Database

INTERVAL = 2.0
"""Seconds between two looks at the database."""
NICENESS = 10
"""Gossip and verification go first."""


def follow(request: FollowRequest) -> None:
    """Write points until the input ends, and then those that are still missing."""
    with closing(Database(Path(request.database), (), read_only=True)) as database:
        follower = Follower(database, round_=request.round, evaluation=request.evaluation)
        with closing(TARGETS[request.target](request.run)) as writer:
            ended = False
            while not ended:
                ended = bool(select.select([0], [], [], INTERVAL)[0])
                for point in follower.new():
                    writer.write(point)


def main() -> int:
    """Serve the request in the first argument."""
    report = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.nice(NICENESS)
    # The node ends this process by closing its input, so that the last points are written.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        follow(from_json(FollowRequest, json.loads(sys.argv[1])))
    except Exception as error:  # noqa: BLE001 - a library may fail in any way
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        os.write(report, line.encode(errors="replace")[:1000])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
