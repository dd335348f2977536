"""What honest peers lose of their delivery to a flood ten times as large, of strangers who send whatever costs most."""

import statistics
import time

import pytest

from load_publishers import Publishers, trusting
from processes import RunningProcess, write_swarm

pytestmark = pytest.mark.bench

FRIENDS, STRANGERS = 4, 8
PER_SECOND, TIMES, SECONDS, SIZE = 5, 10, 40.0, 8_000
"""Messages that all friends send in a second; the flood's, to theirs; how long; bytes of each."""
KINDS = ("valid", "forged", "stale", "garbage")


class Sender:
    """So many messages a second, whatever comes of them. Who is thrown out comes back under a new key."""

    def __init__(self, publishers, users, rate, kinds):
        self._publishers, self._kinds, self._gap = publishers, kinds, 1 / rate
        self._users, self._next, self._due = list(range(users)), users, time.monotonic()
        self.turns, self.sent, self.thrown_out, self.seconds = 0, 0, 0, []

    def send(self):
        """Send what is due."""
        while time.monotonic() >= self._due:
            due = self._due
            self._due += self._gap
            self.turns += 1
            user = self._users[self.turns % len(self._users)]
            if user is not None:
                kind = self._kinds[self.turns // len(self._users) % len(self._kinds)]
                self._publishers.tell({"publish": user, "kind": kind, "bytes": SIZE, "ref": user, "due": due})
                self.sent += 1

    def read(self):
        """Take in what has come of it."""
        while not self._publishers.said.empty():
            answer = self._publishers.said.get()
            if "joined" in answer:
                place = self._users.index(None)
                self._users[place] = answer["joined"]
                if not answer["welcome"]:
                    self._replace(answer["joined"])
            elif "seconds" in answer:
                self.seconds.append(answer["seconds"])
            elif "closed" in answer.get("unsent", "") and answer["ref"] in self._users:
                self._replace(answer["ref"])

    def _replace(self, user):
        self.thrown_out += 1
        self._users[self._users.index(user)] = None
        self._publishers.tell({"join": self._next})
        self._next += 1


@pytest.mark.parametrize("arguments", [("--no-train",), ()], ids=["relays", "trains"])
def test_what_a_flood_costs_honest_peers(tmp_path, arguments):
    swarm = write_swarm(tmp_path / "bench.toml", max_rounds=100_000)
    print(f"\n{PER_SECOND} messages a second of {FRIENDS} friends, {SIZE} bytes each")
    for flood in (False, True):
        folder = tmp_path / str(flood)
        config = trusting(folder, "friends", FRIENDS)
        with RunningProcess(folder, "--swarm", swarm, *config, *arguments) as node:
            address = node.until_event("started")["addresses"][0]
            parts = [Publishers(address, swarm, "friends", FRIENDS)]
            if flood:
                parts.append(Publishers(address, swarm, "strangers", STRANGERS))
            senders = [Sender(parts[0], FRIENDS, PER_SECOND, ("valid",))]
            if flood:
                senders.append(Sender(parts[1], STRANGERS, TIMES * PER_SECOND, KINDS))
            try:
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:
                    for sender in senders:
                        sender.send()
                        sender.read()
                    time.sleep(0.005)
                time.sleep(16)  # what has not come by then is lost
                senders[0].read()
            finally:
                for each in parts:
                    each.close()
        friends = senders[0]
        late = statistics.quantiles(friends.seconds, n=100)
        beside = f", beside {senders[1].sent} of strangers, thrown out {senders[1].thrown_out} times" if flood else ""
        print(
            f"delivered {len(friends.seconds) / friends.sent:.1%} of {friends.sent}, half within {1e3 * late[49]:.0f} "
            f"ms, 99 % within {1e3 * late[98]:.0f} ms{beside}"
        )
