"""A book of groups, and verified groups that come into it as verification enters them."""

import hashlib
import random
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from context import KEY
from sapo_node.groups.book import Book
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import TrainRequest
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import Member, StoredBatch
from sapo_protocol import (
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    Rollout,
    encode_body,
    encode_header,
    encode_message,
    load_manifest,
    open_message,
    seal,
)


@cache
def _rollout() -> Rollout:
    manifest = load_manifest("starter")
    body = encode_body(Body((Completion(("text",), Finish.STOP),) * manifest.completions))
    group = GroupHeader(bytes(32), (1,) * manifest.completions, hashlib.sha256(body).digest())
    envelope = seal(
        encode_header(Header(0, 0, (group,))),
        issuer=KEY.public_key().public_bytes_raw(),
        sign=KEY.sign,
        network_id=manifest.network_id,
    )
    return open_message(encode_message(envelope, (body,)), manifest)


def book_of(database: Database, **settings: Any) -> Book:
    return Book(database, load_manifest("starter"), rng=random.Random(0), **settings)


def offer(book: Book, groups: Iterable[VerifiedGroup]) -> None:
    """Enter groups as those of one rollout, whoever signed them."""
    book.judge(_rollout(), dict(enumerate(groups)))


def entered(database: Database, request: TrainRequest, peers: Mapping[str, str]) -> StoredBatch:
    """A batch whose groups are in the book. `peers` has the peer of each group, by its id."""
    book, members = book_of(database), {}
    for k, group in enumerate(request.groups):
        own = LocalGroup(
            dataset="products",
            prompt=group.prompt,
            digest=bytes(32),
            completions=group.completions,
            levels=Levels(tuple(int(advantage > 0) for advantage in group.advantages)),
            advantages=group.advantages,
            counter=request.step,
            k=k,
        )
        members[group.id] = Member(book.enter(request.step, own), peers[group.id])
    return StoredBatch(request, members)
