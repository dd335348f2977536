"""The wire protocol of a SAPO swarm: pure functions and values, without clock, socket, randomness or torch.

Each step of checking a message makes one type, in one place:

    data -> decode_message -> parse_envelope -> Sealed -> open_envelope -> Opened
         -> decode_header -> Header -> match_bodies -> Rollout
"""

from .assignment import ASSIGNED_SEEDS, Assignment, assign
from .body import Body, Completion, Finish, decode_body, encode_body
from .envelope import ROLLOUT_DOMAIN, Opened, Sealed, open_envelope, parse_envelope, seal
from .epochs import epoch_at, epoch_start, in_window
from .errors import Layer, LocalError, RemoteError, SapoError
from .evidence import Equivocation, Evidence, decode_evidence, encode_evidence, prove_equivocation
from .header import GroupHeader, Header, decode_header, encode_header
from .keys import peer_id, public_key_of
from .manifest import (
    AnswerKind,
    FileSource,
    Manifest,
    TaskSpec,
    decode_manifest,
    load_manifest,
    parse_manifest,
    render_manifest,
    shipped_manifests,
)
from .pull import (
    Delivered,
    GetRequest,
    InventoryItem,
    ListRequest,
    PeerAddress,
    PeersRequest,
    Request,
    decode_delivery,
    decode_listing,
    decode_peers,
    decode_request,
    encode_delivery,
    encode_listing,
    encode_peers,
    encode_request,
)
from .rollout import Rollout, decode_message, encode_message, match_bodies, open_message
from .signature import verify_signature
from .topics import (
    Topic,
    carried_by,
    evidence_topic,
    pull_protocol,
    require_shard,
    rollouts_topic,
    rollouts_topics,
    shard_of,
    topic_of,
)

__all__ = [
    "ASSIGNED_SEEDS",
    "ROLLOUT_DOMAIN",
    "AnswerKind",
    "Assignment",
    "Body",
    "Completion",
    "Delivered",
    "Equivocation",
    "Evidence",
    "FileSource",
    "Finish",
    "GetRequest",
    "GroupHeader",
    "Header",
    "InventoryItem",
    "Layer",
    "ListRequest",
    "LocalError",
    "Manifest",
    "Opened",
    "PeerAddress",
    "PeersRequest",
    "RemoteError",
    "Request",
    "Rollout",
    "SapoError",
    "Sealed",
    "TaskSpec",
    "Topic",
    "assign",
    "carried_by",
    "decode_body",
    "decode_delivery",
    "decode_evidence",
    "decode_header",
    "decode_listing",
    "decode_manifest",
    "decode_message",
    "decode_peers",
    "decode_request",
    "encode_body",
    "encode_delivery",
    "encode_evidence",
    "encode_header",
    "encode_listing",
    "encode_message",
    "encode_peers",
    "encode_request",
    "epoch_at",
    "epoch_start",
    "evidence_topic",
    "in_window",
    "load_manifest",
    "match_bodies",
    "open_envelope",
    "open_message",
    "parse_envelope",
    "parse_manifest",
    "peer_id",
    "prove_equivocation",
    "public_key_of",
    "pull_protocol",
    "render_manifest",
    "require_shard",
    "rollouts_topic",
    "rollouts_topics",
    "seal",
    "shard_of",
    "shipped_manifests",
    "topic_of",
    "verify_signature",
]
