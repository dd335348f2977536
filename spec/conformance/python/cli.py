"""Answers conformance requests with the functions that the node itself runs.

    python spec/conformance/run.py -- python spec/conformance/python/cli.py

For each kind of request it calls these functions in the order of the steps in the spec, and returns their verdict. It
decides nothing itself. The validator has an empty database, a fixed time, and takes every peer for a friend.
"""

import json
import logging
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeAlias

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.state import SCHEMA
from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.book import Book
from sapo_node.groups.record import Unusable
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.validator import Ignored, Ingest, ReplayWindow
from sapo_node.processes.clock import Clock
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.storage.row_files import open_rows, place_of
from sapo_node.tasks import SCORER_VERSION, Task, TaskError, build_task, interop, score, task_digest
from sapo_node.trust.constants import Tier
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.sandbox.requests import Scored
from sapo_node.verification.verifier import compare, request_for
from sapo_protocol import (
    AnswerKind,
    Body,
    GetRequest,
    InventoryItem,
    ListRequest,
    LocalError,
    Manifest,
    PeersRequest,
    RemoteError,
    Rollout,
    assign,
    carried_by,
    decode_body,
    decode_delivery,
    decode_evidence,
    decode_header,
    decode_listing,
    decode_manifest,
    decode_peers,
    decode_request,
    evidence_topic,
    in_window,
    open_envelope,
    open_message,
    parse_envelope,
    peer_id,
    prove_equivocation,
    require_shard,
    rollouts_topic,
    rollouts_topics,
    verify_signature,
)
from sapo_protocol.cbor import decode

_OWN_KEY = Identity(Ed25519PrivateKey.generate())
"""The key of the node that validates. It signs nothing, and no vector uses it."""
_SENDER = peer_id(bytes(32))
"""The peer that sends every message."""

LAYERS: Mapping[str, str] = MappingProxyType(
    {
        Ignored.DUPLICATE: "replay",
        Ignored.OUTSIDE_WINDOW: "window",
        Ignored.EQUIVOCATION: "equivocation",
        Unusable.OTHER_TASK: "digest",
        Unusable.FALSE_CLAIM: "claims",
    }
)
"""Maps the node's reasons to the layers of the spec. Any other reason is local policy and keeps its own text."""


class Refused(Exception):
    """A layer refused, but raised no RemoteError."""

    def __init__(self, layer: str) -> None:
        super().__init__(layer)
        self.layer = layer


@dataclass(frozen=True)
class _FixedClock(Clock):
    time: float

    def now(self) -> float:
        return self.time

    def steady(self) -> float:
        return self.time


class _OpenLedger(Ledger):
    """Tiers are local policy, which no vector tests: here every peer is a friend."""

    def tier(self, peer: str) -> Tier:
        del peer
        return Tier.FRIEND


def validator_at(manifest: Manifest, now: float = 0.0) -> Ingest:
    """Return the node's validator with an empty database, at a fixed time in Unix seconds."""
    database, rng = Database(None, SCHEMA), random.Random(0)  # noqa: S311
    ledger = _OpenLedger(database)
    return Ingest(
        SwarmContext(manifest, _FixedClock(now), _OWN_KEY, rng),
        database=database,
        counters=Counters(database, manifest, now=now, key_is_new=True, rng=rng),
        ledger=ledger,
        equivocation_handler=EquivocationHandler(ledger),
        window=ReplayWindow(database, manifest),
        book=Book(database, manifest, rng=rng),
        message_store=MessageStore(manifest),
        on_fatal=_stop,
    )


def _stop(error: LocalError) -> None:
    raise error


def refusal_of(validator: Ingest, handle: Callable[[str, bytes], Awaitable[Verdict]], data: bytes) -> str | None:
    """Return the layer that refuses a message, or None if the validator accepts it."""
    before = validator.refused.copy()
    if trio.run(handle, _SENDER, data) in (Verdict.ACCEPT, Verdict.KEEP):
        return None
    (reason,) = validator.refused - before
    return LAYERS.get(reason, reason)


Input: TypeAlias = Mapping[str, Any]
Output: TypeAlias = Mapping[str, Any] | None


def main() -> None:
    """Answer each request line on stdin with one line on stdout, until stdin ends."""
    # The node warns its operator of each equivocator. The equivocators in the vectors are only examples.
    logging.disable()
    for line in sys.stdin.buffer:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response to one request."""
    read = _KINDS.get(request["kind"])
    if read is None:
        return {"verdict": "unknown kind"}
    try:
        output = read(request["input"])
    except RemoteError as error:
        return {"verdict": error.layer, "note": str(error)}
    except TaskError as error:
        return {"verdict": "task", "note": str(error)}
    except Refused as refused:
        return {"verdict": refused.layer}
    return {"verdict": "accept"} if output is None else {"verdict": "accept", "output": output}


def _bytes(given: Input, key: str = "bytes") -> bytes:
    return bytes.fromhex(given[key])


def _manifest(given: Input) -> Manifest:
    return decode_manifest(_bytes(given, "manifest"))


def _encoding(given: Input) -> None:
    data = _bytes(given)
    decode(data, limit=len(data))


def _signature(given: Input) -> None:
    if not verify_signature(_bytes(given, "public_key"), _bytes(given, "message"), _bytes(given, "signature")):
        raise Refused("signature")


def _envelope(given: Input) -> Output:
    network_id = _bytes(given, "network_id")
    opened = open_envelope(parse_envelope(_bytes(given), network_id=network_id, domain=given["domain"]))
    return {
        "issuer": opened.issuer.hex(),
        "envelope_id": opened.envelope_id.hex(),
        "payload": opened.payload.hex(),
    }


def _header(given: Input) -> Output:
    header = decode_header(_bytes(given), _manifest(given))
    return {"epoch": header.epoch, "counter": header.counter, "groups": len(header.groups)}


def _body(given: Input) -> Output:
    completions = decode_body(_bytes(given), _manifest(given)).completions
    return {"turns": [list(each.turns) for each in completions], "finishes": [each.finish for each in completions]}


def _message(given: Input) -> Output:
    manifest, data = _manifest(given), _bytes(given)
    validator = validator_at(manifest, given["now_ms"] / 1_000)
    for earlier in given["earlier"]:
        if refusal := refusal_of(validator, validator.handle_synchronised, bytes.fromhex(earlier)):
            raise Refused(f"{refusal} of an earlier message")
    if refusal := refusal_of(validator, validator.handle_synchronised, data):
        raise Refused(refusal)
    rollout = open_message(data, manifest)
    return {
        "issuer": rollout.opened.issuer.hex(),
        "epoch": rollout.header.epoch,
        "counter": rollout.header.counter,
        "envelope_id": rollout.opened.envelope_id.hex(),
    }


def _evidence(given: Input) -> Output:
    manifest, data = _manifest(given), _bytes(given)
    validator = validator_at(manifest)
    if refusal := refusal_of(validator, validator.handle_evidence, data):
        raise Refused(refusal)
    proof = prove_equivocation(decode_evidence(data, manifest), manifest)
    return {"issuer": proof.issuer.hex(), "epoch": proof.epoch, "counter": proof.counter}


def _request(given: Input) -> Output:
    request = decode_request(_bytes(given))
    nothing = dict.fromkeys(("epoch", "after", "shards", "want", "hops", "peers"))
    match request:
        case ListRequest(epoch, after, shards):
            return {**nothing, "epoch": epoch, "after": after.hex(), "shards": shards}
        case GetRequest(want, hops):
            return {**nothing, "want": _pairs(want), "hops": hops or None}
        case PeersRequest(most, shards):
            return {**nothing, "peers": most, "shards": shards}


def _listing(given: Input) -> Output:
    request = decode_request(_bytes(given, "request"))
    if not isinstance(request, ListRequest):
        raise Refused("request")  # the contract promises a valid request for a list
    return {"held": _pairs(decode_listing(_bytes(given), request))}


def _introductions(given: Input) -> Output:
    request = decode_request(_bytes(given, "request"))
    if not isinstance(request, PeersRequest):
        raise Refused("request")
    return {"introduced": [[each.key.hex(), each.address] for each in decode_peers(_bytes(given), request)]}


def _delivery(given: Input) -> Output:
    manifest, request = _manifest(given), decode_request(_bytes(given, "request"))
    if not isinstance(request, GetRequest):
        raise Refused("request")
    return {"ids": [each.envelope_id.hex() for each in decode_delivery(_bytes(given), request, manifest)]}


def _pairs(held: Sequence[InventoryItem]) -> list[list[Any]]:
    return [[each.envelope_id.hex(), each.bodies] for each in held]


def _read_manifest(given: Input) -> Output:
    manifest = decode_manifest(_bytes(given))
    return {
        "network_id": manifest.network_id.hex(),
        "rollouts": rollouts_topic(manifest, 0),
        "evidence": evidence_topic(manifest),
    }


def _window(given: Input) -> None:
    if not in_window(_manifest(given), given["epoch"], given["now_ms"] / 1_000):
        raise Refused("window")


def _topic(given: Input) -> Output:
    return {"carries": carried_by(given["topic"], _manifest(given))}


def _shard(given: Input) -> Output:
    manifest = _manifest(given)
    shard = rollouts_topics(manifest).index(given["topic"])
    require_shard(manifest, shard, _bytes(given, "issuer"), given["epoch"])
    return {"shard": shard}


def _assignment(given: Input) -> Output:
    manifest = _manifest(given)
    task = assign(manifest, _bytes(given, "issuer"), given["epoch"], given["counter"], given["k"])
    # Compare by identity: two entries of a catalogue may be equal.
    index = next(index for index, spec in enumerate(manifest.tasks) if spec is task.spec)
    return {"task": index, "seed": task.seed}


def _built(given: Input) -> Task:
    encoded = _bytes(given, "config")
    config: Any = decode(encoded, limit=len(encoded))
    return build_task(given["dataset"], config, given["seed"])


def _item(given: Input) -> Output:
    if given["dataset"] not in interop.DATASETS:
        raise Refused("task")
    return _shown(_built(given))


def _shown(task: Task) -> Output:
    return {
        "question": task.prompt,
        "answer": task.answer,
        "digest": task_digest(task.prompt, task.answer).hex(),
    }


def _answer(given: Input) -> None:
    if not score(_built(given), given["completion"]):
        raise Refused("answer")


def _row(given: Input) -> Output:
    tasks = _manifest(given).tasks
    spec = tasks[0]
    if spec.source is None:
        raise Refused("file")  # the contract promises a file
    with TemporaryDirectory() as folder:
        place_of(Path(folder), spec.source.file).write_bytes(_bytes(given, "file"))
        try:
            task = open_rows(tasks, Path(folder))[spec.dataset].task(given["seed"])
        except LocalError as error:
            raise Refused("task") from error
    return _shown(task)


def _comparison(given: Input) -> None:
    task = Task("", "", given["reference"], {"choices": given["choices"]}, AnswerKind(given["answers"]))
    if not score(task, given["completion"]):
        raise Refused("answer")


def _mathematics(given: Input) -> None:
    if not score(Task("", "", given["reference"], answers=AnswerKind.MATH), given["completion"]):
        raise Refused("answer")


def _rollout(given: Input) -> Output:
    manifest = _manifest(given)
    rollout = open_message(_bytes(given), manifest)
    return {
        "levels": [
            None if data is None else _levels(manifest, rollout, k, decode_body(data, manifest))
            for k, data in enumerate(rollout.bodies)
        ]
    }


def _levels(manifest: Manifest, rollout: Rollout, k: int, body: Body) -> list[int]:
    """Score the completions of group `k`, in this process: the vectors are not untrusted text."""
    header = rollout.header
    spec = assign(manifest, rollout.opened.issuer, header.epoch, header.counter, k).spec
    if spec.scorer != SCORER_VERSION or spec.turns > 1 or spec.source:
        raise Refused("task")  # a node refuses to join such a swarm
    request = request_for(manifest, rollout, k, body)
    task = build_task(request.dataset, request.config, request.seed)
    levels = tuple(score(task, text, request.levels) for text in request.completions)
    scored = Scored(task.prompt, task_digest(task.prompt, task.answer), levels)
    if finding := compare(rollout.header.groups[k], scored):
        raise Refused(LAYERS.get(finding, finding))
    return list(levels)


_KINDS: Mapping[str, Callable[[Input], Output]] = MappingProxyType(
    {
        "encoding": _encoding,
        "signature": _signature,
        "envelope": _envelope,
        "header": _header,
        "body": _body,
        "message": _message,
        "evidence": _evidence,
        "request": _request,
        "listing": _listing,
        "delivery": _delivery,
        "introductions": _introductions,
        "manifest": _read_manifest,
        "window": _window,
        "topic": _topic,
        "shard": _shard,
        "assignment": _assignment,
        "item": _item,
        "answer": _answer,
        "row": _row,
        "comparison": _comparison,
        "mathematics": _mathematics,
        "rollout": _rollout,
    }
)


if __name__ == "__main__":
    main()
