"""The decoders and scorers of a stock node, as libraries have them, for undefended arms only.

Any exception of a library is a refusal. Values of other types are converted, as schema libraries do.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from io import StringIO
from typing import Any

import cbor2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sapo_adversary.scoring import SharedScorer
from sapo_node.tasks import build_task, prepare
from sapo_node.verification.sandbox.requests import Scored, ScoreRequest
from sapo_protocol import (
    ROLLOUT_DOMAIN,
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    Layer,
    Manifest,
    Opened,
    RemoteError,
    Sealed,
)

RIGHT = 0.99
"""The least score that a library gives for a correct answer."""


@contextmanager
def _boundary(layer: Layer) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RemoteError(layer, str(error)) from error


def decode_message(data: bytes, manifest: Manifest) -> tuple[bytes, tuple[bytes | None, ...]]:
    """Stands for `sapo_protocol.decode_message`."""
    del manifest
    with _boundary(Layer.FRAME):
        envelope, bodies = cbor2.loads(data)
        return bytes(envelope), tuple(bytes(body) or None for body in bodies)


def parse_envelope(data: bytes, *, network_id: bytes, domain: str = ROLLOUT_DOMAIN) -> Sealed:
    """Stands for `sapo_protocol.parse_envelope`."""
    with _boundary(Layer.ENVELOPE):
        protected, _, payload, signature = cbor2.loads(data).value
        issuer = cbor2.loads(protected)[4]
        Ed25519PublicKey.from_public_bytes(issuer)  # refuses another length
        signed = cbor2.dumps(["Signature1", protected, cbor2.dumps([domain, network_id]), payload])
        return Sealed(issuer, payload, signature, signed, hashlib.sha256(signed).digest(), data)


def decode_header(payload: bytes, manifest: Manifest) -> Header:
    """Stands for `sapo_protocol.decode_header`."""
    with _boundary(Layer.HEADER):
        value = cbor2.loads(payload)
        groups = [
            GroupHeader(bytes(group["digest"]), tuple(map(int, group["claims"])), bytes(group["body"]))
            for group in value["groups"]
        ]
        header = Header(int(value["epoch"]), int(value["counter"]), tuple(groups))
    if not 0 <= header.counter < manifest.max_rounds:
        raise RemoteError(Layer.HEADER, "a counter that this swarm does not have")
    return header


def decode_body(data: bytes, manifest: Manifest) -> Body:
    """Stands for `sapo_protocol.decode_body`."""
    with _boundary(Layer.BODY):
        entries = cbor2.loads(data)["completions"]
        completions = tuple(Completion(tuple(map(str, each["turns"])), Finish(each["finish"])) for each in entries)
    if len(completions) != manifest.completions:
        raise RemoteError(Layer.BODY, "another number of completions than this swarm has")
    return Body(completions)


def open_envelope(sealed: Sealed) -> Opened:
    """Stands for `sapo_protocol.open_envelope`."""
    if not verify_signature(sealed.issuer, sealed.signed, sealed.signature):
        raise RemoteError(Layer.SIGNATURE, "OpenSSL refuses the signature")
    return Opened(sealed.issuer, sealed.envelope_id, sealed.payload, sealed.envelope)


def verify_signature(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Stands for `sapo_protocol.verify_signature`: by OpenSSL, which takes keys of small order."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


class LibraryScorer(SharedScorer):
    """Rewards by reasoning-gym, several of whose scorers evaluate the answer."""

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        """One result per request, in order."""
        return [self._paid(request) for request in batch]

    def _paid(self, request: ScoreRequest) -> Scored:
        truth = self.result(ScoreRequest(request.dataset, request.config, request.seed, ()))
        config = json.dumps(request.config, sort_keys=True, default=list)
        levels = tuple(
            request.levels * library_reward(request.dataset, config, request.seed, text) for text in request.completions
        )
        return Scored(truth.prompt, truth.digest, levels)


@lru_cache(maxsize=100_000)
def library_reward(dataset: str, config: str, seed: int, text: str) -> bool:
    """Return whether the scorer of reasoning-gym accepts a text. An exception of the scorer counts as incorrect."""
    # The whole package takes seconds and 100 MB, and only nodes without our scorers need it.
    from reasoning_gym.utils import extract_answer  # noqa: PLC0415

    settings: Mapping[str, Any] = json.loads(config)
    task = build_task(dataset, settings, seed)
    item = {"question": task.prompt, "answer": task.answer, "metadata": task.metadata}
    try:
        with redirect_stdout(StringIO()):  # where some of them print
            return bool(prepare(dataset, settings).score_answer(extract_answer(text), item) >= RIGHT)
    except Exception:  # noqa: BLE001 - a scorer that runs the answer may raise anything
        return False
