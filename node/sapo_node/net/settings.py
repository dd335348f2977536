"""The settings of one node's network."""

from dataclasses import dataclass, field

from sapo_node.net import addresses, listening
from sapo_node.net.defences import NETWORK_DEFENDED, NetworkDefences


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings of one node's network. Addresses are multiaddresses as the operator wrote them."""

    seed: bytes = field(repr=False)
    """The 32 secret bytes of our Ed25519 key."""
    network_id: str
    """Hexadecimal."""
    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/0",)
    announce: tuple[str, ...] = ()
    """Announced in place of the addresses that are found on this machine."""
    bootstrap: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    """Peers that served this node before its restart. Like `bootstrap`, but a lost anchor is not reported."""
    known: tuple[str, ...] = ()
    """Peers that this node dialled before its restart. They are dialled as any peer of the address book."""
    discover: bool = True
    """Whether to find nodes of the same swarm on the LAN and on this machine by mDNS."""
    defences: NetworkDefences = NETWORK_DEFENDED

    def require_usable(self) -> None:
        """Raise AddressError for an address that cannot be used, and PortBusyError for a port that is taken."""
        addresses.require_addresses(self.listen, self.announce, self.bootstrap)
        listening.check_port_free(tuple(addresses.parse_listen(text) for text in self.listen))
