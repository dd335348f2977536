import itertools
from typing import TYPE_CHECKING

import trio

from sapo_adversary.attacks.gossip.kit import GossipKit, nowhere, peer_of
from sapo_adversary.attacks.gossip.sybils import Sybils
from sapo_protocol import PeerAddress, PeersRequest, decode_request, encode_listing, encode_peers
from sapo_protocol.limits import MAX_PX_PEERS

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link, Peer


class FalseIntroductions(Sybils):
    """Peers that honest nodes chose to dial, asked whom else they know, name places where nobody is.

    They pass everything on and wait to be dialled, for only those whom a node dialled itself are asked. Each answer
    names as many as one may, never the same twice.
    """

    id = "false-introductions"
    row = 23

    def __init__(self, kit: GossipKit) -> None:
        super().__init__(kit)
        self._turn = itertools.count()

    def equip(self, peer: "Peer") -> None:
        """It answers whoever asks."""
        peer.answer(self.kit.asking, self._answer)

    def _answer(self, request: bytes) -> bytes:
        """To who asks for peers, keys that nobody has, at places of this machine at which nobody listens; to who asks
        for messages, that there are none.
        """
        if not isinstance(decode_request(request), PeersRequest):
            return encode_listing([])
        dice = self.kit.rng
        named = [
            PeerAddress(next(self._turn).to_bytes(2) + dice.randbytes(30), nowhere(dice)) for _ in range(MAX_PX_PEERS)
        ]
        return encode_peers(named)

    async def greet(self, link: "Link") -> None:
        """Where it is, as every peer says: who is asked is one of whom that is known."""
        await link.say_where([link.peer.address.partition("/p2p/")[0]])
        await super().greet(link)

    async def reach(self, peer: "Peer", address: str) -> "Link":
        """It never calls first."""
        while (link := peer.links.get(peer_of(address))) is None:  # noqa: ASYNC110 - the library has no event for it
            await trio.sleep(0.2)
        return link
