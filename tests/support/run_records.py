"""Records of attacked runs as a simulation writes them, with the parts that metrics read."""

from collections.abc import Iterable
from typing import Any

from sapo_node.trust.constants import PeerState


def record(
    reward: float,
    trained: Iterable[tuple[str, int]] = (("own", 8),),
    banned: Iterable[tuple[str, int]] = (),
    violations: int = 0,
) -> dict[str, Any]:
    """Two nodes, each with two rounds of this mean reward; the groups that each trained on, by peer, and in which round
    it banned a peer. Each trained on `violations` false groups.
    """
    states = {"last": {"honest": {PeerState.HEALTHY: 1}}, "banned": dict(banned), "trust": {}}
    findings = {"violations": {"false": violations}, "copied": 0, "poison": [0.0]}
    node = {
        "peer": "a",
        "rounds": {"reward": [reward, reward], "external": [2, 2]},
        "trained": {peer: {"groups": groups, "tokens": 9} for peer, groups in trained},
        "findings": findings,
        "states": states,
        "heldout": [{"pass_at_1": reward, "per_task": {"sums": reward}}],
        "stored": 1,
        "refused": {},
    }
    return {"nodes": [node, {**node, "peer": "b"}], "scenario": {"crowd": 0}}
