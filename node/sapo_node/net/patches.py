"""Changes inside py-libp2p 0.8.1 that must be made before a host is built. Each says what the library does.

`sapo_node.net.host` applies them on import, once per process. They do not change the wire.
"""

import logging

from libp2p.crypto import serialization
from libp2p.crypto.keys import KeyType
from libp2p.stream_muxer.yamux import yamux

from sapo_node.net.yamux import PING_SECONDS, WINDOW_BYTES


def read_ed25519_keys_only() -> None:
    """Refuse keys of other types by their type: no peer of a swarm has one.

    The library accepts an RSA key from anybody in a handshake. It takes a private key for one as well, and tests
    whether the primes of that are prime. One of 7 KB takes 2 s of CPU, in which this node does nothing else.
    `PeerRecords` refuses them in records.
    """
    readers = serialization.key_type_to_public_key_deserializer
    for kind in readers.keys() - {KeyType.Ed25519.value}:
        del readers[kind]


def apply() -> None:
    """Make all changes. Must run before the first host is built; a second call does nothing more."""
    read_ed25519_keys_only()
    yamux.RTT_MEASURE_INTERVAL = PING_SECONDS
    yamux.MAX_WINDOW_SIZE = WINDOW_BYTES
    library = logging.getLogger("libp2p")
    if not library.handlers:
        # The library logs each failed dial as an error. Set LIBP2P_DEBUG to see its log.
        library.addHandler(logging.NullHandler())
