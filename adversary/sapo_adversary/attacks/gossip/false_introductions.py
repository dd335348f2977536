import itertools
from typing import TYPE_CHECKING

import trio

from sapo_adversary.attacks.gossip.addresses import nowhere, peer_of
from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_adversary.attacks.gossip.sybils import Sybils
from sapo_protocol import PeerAddress, PeersRequest, decode_request, encode_listing, encode_peers
from sapo_protocol.limits import MAX_PX_PEERS

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link, Peer


class FalseIntroductions(Sybils):
    """Peers that honest nodes chose to dial answer a request for peers with addresses at which no host listens.

    They forward every message and wait to be dialled, since a node asks only peers that it dialled itself. Each answer
    has the greatest number of addresses, and no address twice.
    """

    id = "false-introductions"

    def __init__(self, kit: GossipKit) -> None:
        super().__init__(kit)
        self._turn = itertools.count()

    def equip(self, peer: "Peer") -> None:
        """Answer requests."""
        peer.answer(self.kit.asking, self._answer)

    def _answer(self, request: bytes) -> bytes:
        """To a request for peers: keys that no peer has, at addresses at which no host listens. To a request for
        messages: none.
        """
        if not isinstance(decode_request(request), PeersRequest):
            return encode_listing([])
        rng = self.kit.rng
        named = [
            PeerAddress(next(self._turn).to_bytes(2) + rng.randbytes(30), nowhere(rng)) for _ in range(MAX_PX_PEERS)
        ]
        return encode_peers(named)

    async def greet(self, link: "Link") -> None:
        """Send the true peer record, as every peer does: nodes ask only peers whose record they have."""
        await link.say_where([link.peer.address.partition("/p2p/")[0]])
        await super().greet(link)

    async def reach(self, peer: "Peer", address: str) -> "Link":
        """Wait until the honest node dials."""
        while (link := peer.links.get(peer_of(address))) is None:  # noqa: ASYNC110 - the library has no event for it
            await trio.sleep(0.2)
        return link
