"""Transports opaque messages between the nodes of one swarm, and manages their connections.

This room does not know what a message means or which peer to trust: the node passes callables for both.

No node asks for a TLS certificate. Where py-libp2p imports its ACME client, and httpx, requests and rich with it, it
gets an empty module instead: 10 MB less in each process.
"""

import sys
from types import ModuleType

for _name, _classes in {
    "libp2p.security.tls.autotls.acme": ("ACMEClient", "compute_b36_peer_id"),
    "libp2p.security.tls.autotls.broker": ("BrokerClient",),
}.items():
    _module = ModuleType(_name)
    vars(_module).update(dict.fromkeys(_classes, object))
    sys.modules.setdefault(_name, _module)
