"""Every bound of the wire, in one place. Nothing is read, decoded or stored past these numbers.

A manifest may set tighter limits for its swarm, never wider ones.
"""

MAX_MESSAGE_BYTES = 1_000_000
"""One gossip message: envelope and bodies."""

MAX_ENVELOPE_BYTES = 2_000
"""One COSE_Sign1, so that two of them (evidence of equivocation) stay within 4 KB."""

MAX_GROUPS = 16
"""Groups listed by one header."""

MIN_COMPLETIONS, MAX_COMPLETIONS = 2, 16
"""G, completions per group; fewer than two have no advantage."""

MAX_COMPLETION_BYTES = 65_536
"""UTF-8 bytes of one completion."""

MAX_MODEL_LABEL_BYTES = 64
"""UTF-8 bytes of the free label by which a sender may name its model."""

MAX_EXTENSION_BYTES = 256
"""Encoded bytes of the signed, ignored map `x`."""

MAX_DEPTH = 8
"""Nesting of arrays and maps in anything that is decoded."""

MAX_ITEMS = 4_096
"""Data items (keys included) in anything that is decoded."""

MAX_MANIFEST_BYTES = 65_536
"""One manifest, encoded."""

MAX_EVIDENCE_BYTES = 4_096
"""One evidence message: two envelopes."""

MAX_REQUEST_BYTES = 4_096
"""One request to pull."""

MAX_LISTED, MAX_LISTING_BYTES = 1_024, 40_000
"""Envelopes that one listing names, and its size."""

MAX_DELIVERED, MAX_DELIVERY_BYTES = 64, 1_048_576
"""Messages that one request may ask for, and the size of what is delivered."""

MAX_PX_PEERS, MAX_PX_BYTES = 16, 4_096
"""Peers that one answer introduces, and its size."""

MAX_ADDRESS_BYTES = 128
"""Of the place at which an introduced peer is."""

MAX_SHARDS = 32
"""Topics over which rollouts are spread: few enough for a peer to follow all of them in a small swarm."""

MAX_TASKS = 64
MAX_DATASET_BYTES = 64
MAX_REASONING_GYM_BYTES = 32
MIN_MESSAGE_LIMIT = 2_000
MIN_COMPLETION_LIMIT = 16

MIN_EPOCH_SECONDS, MAX_EPOCH_SECONDS = 5, 86_400
MAX_ROUNDS_PER_EPOCH = 100_000

CLOCK_SKEW_SECONDS = 30.0
"""How far ahead of the epoch boundary an envelope of the next epoch is taken."""

MAX_UINT = 2**64 - 1
"""The widest integer CBOR's major type 0 can hold."""
