"""The wire protocol of a SAPO swarm: pure functions and values, without clock, socket, randomness or torch.

A message becomes believable in steps, and each step is a type made in one place:

    data -> decode_message -> parse_envelope -> Sealed -> open_envelope -> Opened -> decode_rollout -> Rollout
"""

from .assignment import ASSIGNED_SEEDS, Assignment, assign
from .envelope import ROLLOUT_DOMAIN, Opened, Sealed, open_envelope, parse_envelope, seal
from .epochs import epoch_at, epoch_start, in_window
from .errors import Layer, LocalError, RemoteError, SapoError
from .evidence import Equivocation, prove_equivocation
from .keys import peer_id, public_key_of
from .manifest import Manifest, TaskSpec, load_manifest, parse_manifest, render_manifest, shipped_manifests
from .rollout import (
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    Rollout,
    decode_body,
    decode_header,
    decode_message,
    decode_rollout,
    encode_body,
    encode_header,
    encode_message,
    open_message,
)
from .signature import verify_signature

__all__ = [
    "ASSIGNED_SEEDS",
    "ROLLOUT_DOMAIN",
    "Assignment",
    "Body",
    "Completion",
    "Equivocation",
    "Finish",
    "GroupHeader",
    "Header",
    "Layer",
    "LocalError",
    "Manifest",
    "Opened",
    "RemoteError",
    "Rollout",
    "SapoError",
    "Sealed",
    "TaskSpec",
    "assign",
    "decode_body",
    "decode_header",
    "decode_message",
    "decode_rollout",
    "encode_body",
    "encode_header",
    "encode_message",
    "epoch_at",
    "epoch_start",
    "in_window",
    "load_manifest",
    "open_envelope",
    "open_message",
    "parse_envelope",
    "parse_manifest",
    "peer_id",
    "prove_equivocation",
    "public_key_of",
    "render_manifest",
    "seal",
    "shipped_manifests",
    "verify_signature",
]
