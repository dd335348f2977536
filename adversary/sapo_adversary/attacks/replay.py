from collections import deque
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet
from sapo_protocol import RemoteError, decode_message, encode_message


class Replay(Attack):
    """Messages that were valid once are sent again, whole and in parts, so that they are trained on twice.

    A message without some of its bodies has another content id, which the seen cache does not know.
    """

    id = "replay"
    layer = "identity"

    def __init__(self, kit: Kit, *, repeats: int = 8, kept: int = 4_096) -> None:
        """`repeats` of the last `kept` messages are sent again at each turn."""
        super().__init__(kit)
        self._repeats = repeats
        self._recorded: deque[bytes] = deque(maxlen=kept)

    def hear(self, message: bytes) -> None:
        """Keep a message, to send it again later."""
        self._recorded.append(message)

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round of its own, at first in part; then recorded messages, in part and whole."""
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            groups = self.kit.flawless(key, epoch, counter, self.groups)
            message = self.kit.message(key, epoch, counter, groups)
            self._recorded.append(message)
            yield Packet(self._part_of(message))
        for message in self.kit.rng.sample(self._recorded, min(self._repeats, len(self._recorded))):
            yield Packet(self._part_of(message))
            yield Packet(message)

    def _part_of(self, message: bytes) -> bytes:
        """The message with each body kept or left out at random."""
        try:
            envelope, bodies = decode_message(message, self.kit.manifest)
        except RemoteError:
            return message
        return encode_message(envelope, tuple(body if self.kit.rng.random() < 0.5 else None for body in bodies))
