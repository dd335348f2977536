import hashlib
from collections.abc import Iterable, Sequence

from sapo_adversary.attacks.kit import Attack, Key, Packet
from sapo_protocol import ROLLOUT_DOMAIN, decode_message, encode_evidence, encode_message, parse_envelope, seal

DOMAINS = ("sapo/evidence/1", "sapo/rollout/2", "sapo/rollout", "sapo/task/1", "libp2p-peer-record", "")
"""Other domains that a key may sign for."""


class CrossDomain(Attack):
    """A message that was signed for another swarm or another purpose is sent as a rollout of this swarm."""

    id = "cross-domain"
    layer = "identity"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A flawless round, sealed for another domain or network. Every fourth time also evidence as a rollout and a
        rollout as evidence.
        """
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        groups = self.kit.flawless(key, epoch, counter, self.groups)
        places = elsewhere(self.kit.manifest.network_id)
        network_id, domain = places[counter % len(places)]
        payload = self.kit.payload(epoch, counter, groups)
        envelope = seal(payload, issuer=key.issuer, sign=key.sign, network_id=network_id, domain=domain)
        yield Packet(encode_message(envelope, tuple(group.body for group in groups)))
        if counter % 4 == 0:
            true = [self.kit.message(key, epoch, counter, [group]) for group in groups[:2]]
            yield Packet(self._evidence(true))
            yield Packet(true[0], "evidence")

    def _evidence(self, messages: Sequence[bytes]) -> bytes:
        """Valid evidence of an equivocation, sent on the topic of rollouts."""
        envelopes = (decode_message(each, self.kit.manifest)[0] for each in messages)
        one, other = (parse_envelope(each, network_id=self.kit.manifest.network_id) for each in envelopes)
        return encode_evidence(one, other)


def elsewhere(network_id: bytes) -> list[tuple[bytes, str]]:
    """Pairs of network id and domain that differ a little from those of this swarm's rollouts."""
    another = hashlib.sha256(network_id).digest()
    swarms = [(each, ROLLOUT_DOMAIN) for each in (another, bytes(32), b"", network_id[:-1], network_id + b"\0")]
    return swarms + [(network_id, domain) for domain in DOMAINS]
