"""Every limit of the wire protocol. A manifest may set lower limits for its swarm, never higher ones."""

MAX_MESSAGE_BYTES = 1_000_000
"""One gossip message: envelope and bodies."""

MAX_ENVELOPE_BYTES = 2_000
"""One COSE_Sign1, so that two of them (evidence of equivocation) stay within 4 KB."""

MAX_GROUPS = 16
"""Groups listed by one header."""

MIN_COMPLETIONS, MAX_COMPLETIONS = 2, 16
"""G, completions per group. A single completion has no advantage."""

MAX_COMPLETION_BYTES = 65_536
"""UTF-8 bytes of one completion."""

MAX_LEVELS = 255
"""L, the highest level of a task: a header has one byte for each claim."""

MAX_TURNS = 16
"""Turns of one completion."""

MIN_FILE_ROWS, MAX_FILE_ROWS = 32, 2**24
"""Rows of a file that defines a task: some are held out, and some are worked examples."""

MAX_ORIGIN_BYTES = 512
"""UTF-8 bytes of the text that says where a file comes from."""

MAX_BOOTSTRAP_PEERS, MAX_BOOTSTRAP_BYTES = 16, 256
"""Addresses in the hint beside a manifest, and the bytes of each."""

MAX_MODEL_LABEL_BYTES = 64
"""UTF-8 bytes of the sender's label for its model."""

MAX_EXTENSION_BYTES = 256
"""Encoded bytes of the signed, ignored map `x`."""

MAX_DEPTH = 8
"""Levels of arrays and maps in one decoded item."""

MAX_ITEMS = 4_096
"""Data items (keys included) in one decoded item."""

MAX_MANIFEST_BYTES = 65_536
"""One manifest, encoded."""

MAX_EVIDENCE_BYTES = 4_096
"""One evidence message: two envelopes."""

MAX_REQUEST_BYTES = 4_096
"""One request (spec: pull)."""

MAX_LISTED, MAX_LISTING_BYTES = 1_024, 40_000
"""Envelopes in one listing, and its bytes."""

MAX_DELIVERED, MAX_DELIVERY_BYTES = 64, 1_048_576
"""Messages in one request and in its delivery, and the bytes of the delivery."""

MAX_HOPS = 4
"""Peers through which a request for bodies may be passed on, after the first."""

MAX_PX_PEERS, MAX_PX_BYTES = 16, 4_096
"""Peers in one response of peer exchange, and its bytes."""

MAX_ADDRESS_BYTES = 128
"""UTF-8 bytes of one multiaddress in peer exchange."""

MAX_SHARDS = 32
"""Topics among which a swarm divides rollouts: few enough that a peer of a small swarm can subscribe to all."""

MAX_TASKS = 64
MAX_DATASET_BYTES = 64
MAX_REASONING_GYM_BYTES = 32
MIN_MESSAGE_LIMIT = 2_000
MIN_COMPLETION_LIMIT = 16

MIN_EPOCH_SECONDS, MAX_EPOCH_SECONDS = 5, 86_400
MAX_ROUNDS_PER_EPOCH = 100_000

CLOCK_SKEW_SECONDS = 30.0
"""An envelope of the next epoch is accepted from this many seconds before that epoch begins."""

MAX_UINT = 2**64 - 1
"""The largest integer of CBOR's major type 0."""
