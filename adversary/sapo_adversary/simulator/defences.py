"""Defences by name, and how a swarm goes without each: the undefended arm of every attack.

The node has no such switches. A run without a defence replaces, in its own process and until it ends, the function or
the number that is the defence.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Any

import sapo_node.ingest
import sapo_protocol.rollout
from sapo_node.jail.messages import ScoreRequest
from sapo_node.replay import ReplayWindow
from sapo_node.trust import policy
from sapo_node.verify import VerifiedGroup, Verifier, request_for
from sapo_protocol import LocalError, Opened, Rollout, Sealed, decode_body, peer_id

Replacement = tuple[Any, str, Any]
"""Object, name of its attribute, and what stands there instead."""


async def _believe(verifier: Verifier, rollout: Rollout) -> list[VerifiedGroup]:
    """Take the claims for the rewards, as whoever does not score again must."""
    groups = []
    for k, (header, data) in enumerate(zip(rollout.header.groups, rollout.bodies, strict=True)):
        if data is None or len(set(header.claims)) == 1:
            continue
        body = decode_body(data, verifier._manifest)  # noqa: SLF001 - stands for a method of it
        request = request_for(verifier._manifest, rollout, k, body)  # noqa: SLF001
        [task] = await verifier._scorer.score([ScoreRequest(request.dataset, request.config, request.seed, ())])  # noqa: SLF001
        place = (peer_id(rollout.opened.issuer), rollout.header.epoch, rollout.header.counter, k)
        if task is not None:
            groups.append(VerifiedGroup(*place, request.dataset, task.question, body.completions, header.claims))
    return groups


def _open_unseen(sealed: Sealed) -> Opened:
    """Take any signature for a good one."""
    return Opened(sealed.issuer, sealed.envelope_id, sealed.payload, sealed.envelope)


DEFENCES: Mapping[str, tuple[Replacement, ...]] = {
    "re-verification": ((Verifier, "verify", _believe),),
    "signatures": (
        (sapo_node.ingest, "open_envelope", _open_unseen),
        (sapo_protocol.rollout, "open_envelope", _open_unseen),
    ),
    "replay window": (
        (ReplayWindow, "received", lambda _self, _envelope_id: None),
        (ReplayWindow, "first", lambda _self, _issuer, _header: None),
        (ReplayWindow, "remembers", lambda _self, _epoch: True),
        (sapo_node.ingest, "in_window", lambda _manifest, _epoch, _now: True),
        (policy, "MAX_AGE", 10**9),
    ),
    "one content a counter": ((ReplayWindow, "first", lambda _self, _issuer, _header: None),),
    "newcomer class": (
        (policy, "NEWCOMER_SHARE", 1.0),
        (policy, "NEWCOMER_CREDIT_LIMIT", inf),
        (policy, "NEWCOMER_VERIFICATIONS", 64),
        (policy, "NEWCOMER_COUNTERS", 1.0),
        (policy, "NEWCOMER_ENVELOPES", 10**9),
    ),
    "promotion limits": ((policy, "EARNED_PER_EPOCH", 10**9), (policy, "PROMOTIONS_SHARE", 10.0**9)),
    "peer share": ((policy, "PEER_SHARE", 1.0),),
    "mass limit": ((policy, "MASS_LIMIT", inf),),
    "costly lies": ((policy, "OFFENCE", dict.fromkeys(policy.OFFENCE, 0.0)),),
    "sender rate": ((policy, "MESSAGES_PER_SECOND", 10.0**9), (policy, "MESSAGE_BURST", 10.0**9)),
}


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Go without these defences. Raises LocalError for a name that is none."""
    names = tuple(names)
    for name in names:
        if name not in DEFENCES:
            raise LocalError(f"no defence {name!r}; there are {', '.join(DEFENCES)}")
    with ExitStack() as stack:
        for name in names:
            for owner, attribute, value in DEFENCES[name]:
                stack.callback(setattr, owner, attribute, getattr(owner, attribute))
                setattr(owner, attribute, value)
        yield
