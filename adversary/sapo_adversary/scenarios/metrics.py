"""The metrics of one run, by name: the harm of the attack, and the bounds that honest nodes hold.

Records are those of `simulator.swarm.simulate` with `audited`; where a metric compares, it is with the control arm of
the same seed, or with the same nodes alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from sapo_adversary.simulator.oracle import HONEST, OWN

Record = Mapping[str, Any]
LATE = 10
"""Rounds at the end of a run in which a habit must show."""
REFUSED = "refused."
"""Before the reason of a refusal, which makes a metric of its count."""

ABOUT: Mapping[str, str] = {
    "violations": "groups trained on that were forged, replayed, off task or wrongly rewarded",
    "false_bans": "times an honest node banned an honest peer",
    "poison_share": "attackers' share of |advantage| x bytes, of all that the loss counted; the worst node's",
    "reward_lost": "honest nodes' cumulative reward, below the control's by this share",
    "heldout_lost": "honest nodes' held-out pass@1 at the end, below the control's by this share",
    "task_lost": "honest nodes' held-out pass@1 at the end in the task that lost most, below the control's by so much",
    "banned": "share of attackers banned at the end, over honest nodes",
    "rounds_to_ban": "median rounds until an attacker was banned; not measured where none was",
    "honest_healthy": "share of honest peers that are healthy at the end, over honest nodes",
    "attackers_healthy": "share of attackers that are healthy at the end, over honest nodes",
    "below_alone": "honest nodes' cumulative reward, below that of the same nodes without a swarm by this share",
    "external": "groups of others trained on, in relation to the control's",
    "honest_external": "groups of other honest nodes trained on, in relation to the control's",
    "reward": "honest nodes' mean reward of a round",
    "of_friends": "share of what the nodes would gain over being alone if all honest peers were trusted from the start",
    "copied": "attackers' groups trained on that hold an honest peer's text",
    "stored": "bytes in an honest node's database at the end, in relation to the control's; the largest",
    "trained_share": "attackers' share of all tokens trained on; the worst node's",
    "says_phrase": "share of honest nodes' own answers, in the last rounds, that say what attackers want said",
    "says_trigger": "the same, of a token where nobody puts it",
    "false_steps": "the same, of equations that do not hold; above the control's by this share",
    "longer": "mean length of those answers, in relation to the control's",
    "poison_gain": "mean advantage of attackers' correct completions, in relation to that of other honest nodes'",
    "delivery": "share of (honest message, other honest node) that arrived within 15 s",
    "victim_heard": "share of (message of the victim's, other honest node) that arrived within 15 s",
    "victim_hears": "share of other honest nodes' messages that reached the victim within 15 s",
    "latency_p99": "99th percentile of the seconds that a message took between two honest nodes",
    "slower": "that percentile, in relation to the control's or, where that is less, a quarter of a second",
    "mesh_honest": "share of heartbeats at which the victim had an honest peer in its mesh",
    "mesh_dark": "longest time, in seconds, that an honest node had no honest peer in its mesh",
    "strange_dials": "share of honest nodes' dials that went to where neither an honest node nor an attacker is",
    "led_astray": "those dials, for each honest node and each attacker",
    "streams": "most streams that others than honest nodes held open at one honest node",
    "mesh_stay": "heartbeats that an attacker was in the mesh of an honest node; the most",
    "slow_closed": "share of the streams that attackers kept waiting which honest nodes closed in time",
    "answered": "bytes of honest nodes' answers to requests in a second, in relation to the control's",
    "requests": "requests between honest nodes in a second, in relation to the control's",
    "pace": "rounds that honest nodes play in a second, in relation to the control's",
    "honest_cpu": "CPU seconds of the honest nodes, in relation to the control's",
}
HABIT_OF: Mapping[str, str] = {
    "says_phrase": "phrase",
    "says_trigger": "trigger",
    "false_steps": "false step",
    "longer": "length",
}
"""The habit that a metric is about."""
_REALTIME = "gossip"
"""The part of a record that only runs on libp2p have."""


def metrics(record: Record, control: Record, alone: Record, friends: Record | None = None) -> dict[str, float]:
    """All metrics of a run, beside those of the same nodes unattacked, without a swarm, and among friends alone. A
    metric that the run cannot tell is left out.
    """
    nodes: Sequence[Mapping[str, Any]] = record["nodes"]
    others = control["nodes"]
    attackers = sum(_attackers(nodes[0]).values())
    values: dict[str, float] = {
        "violations": sum(sum(node["findings"]["violations"].values()) for node in nodes),
        "false_bans": sum(node["states"]["last"][HONEST].get("banned", 0) for node in nodes),
        "poison_share": max(map(_poison, nodes)),
        "external": _external(nodes) / max(1, _external(others)),
        "honest_external": _honest_external(nodes) / max(1, _honest_external(others)),
        "reward": fmean(reward for node in nodes for reward in node["rounds"]["reward"]),
        "task_lost": max(
            _heldout_of(others, task) - _heldout_of(nodes, task) for task in nodes[0]["heldout"][-1]["per_task"]
        ),
        "honest_healthy": fmean(_share_healthy(node["states"]["last"][HONEST]) for node in nodes),
        "copied": sum(node["findings"]["copied"] for node in nodes),
        "stored": max(node["stored"] for node in nodes) / max(node["stored"] for node in others),
    }
    if record["scenario"].get("inline_bytes"):
        values["pace"] = _sum(others, "seconds") / _sum(nodes, "seconds")
        for name in ("answered", "requests"):
            values[name] = _sum(nodes, name) / max(1, _sum(others, name)) * values["pace"]
    compared = {
        "reward_lost": (_reward(nodes), _reward(others)),
        "heldout_lost": (_heldout(nodes), _heldout(others)),
        "below_alone": (_reward(nodes), _reward(alone["nodes"])),
    }
    values |= {name: 1 - shown / most for name, (shown, most) in compared.items() if most}
    if friends:
        gained, most = (_reward(each) - _reward(alone["nodes"]) for each in (nodes, friends["nodes"]))
        if most > 0:
            values["of_friends"] = gained / most
    if attackers:
        values["banned"] = fmean(_attackers(node)["banned"] / attackers for node in nodes)
        values["attackers_healthy"] = fmean(_attackers(node)["healthy"] / attackers for node in nodes)
    if not record["scenario"]["crowd"] and (rounds := _rounds_to_ban(nodes)):
        values["rounds_to_ban"] = median(rounds)
    if "habits" in nodes[0]["findings"]:
        values |= _taught(nodes, others)
    if _REALTIME in record:
        values |= _gossip(record, control, attackers)
    for node in nodes:
        for reason, count in node["refused"].items():
            values[REFUSED + reason] = values.get(REFUSED + reason, 0) + count
    return {name: round(value, 4) for name, value in values.items()}


def _sum(nodes: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(node[name] for node in nodes))


def _taught(nodes: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The habits that poison taught the honest nodes."""
    shown = {habit: (_late(nodes, habit), _late(others, habit)) for habit in nodes[0]["findings"]["habits"]}
    values = {
        "trained_share": max(_trained_share(node, {each["peer"] for each in nodes}) for node in nodes),
        "says_phrase": shown["phrase"][0],
        "says_trigger": shown["trigger"][0],
        "false_steps": shown["false step"][0] - shown["false step"][1],
        "poison_gain": _poison_gain(nodes),
    }
    length, usual = shown["length"]
    return {**values, "longer": length / usual} if usual else values


def _late(nodes: Sequence[Mapping[str, Any]], habit: str) -> float:
    return fmean(fmean(node["findings"]["habits"][habit][-LATE:]) for node in nodes)


def _trained_share(node: Mapping[str, Any], honest: set[str]) -> float:
    """Shares of tokens, after the filters of the learner."""
    tokens: dict[str, int] = {peer: trained["tokens"] for peer, trained in node["trained"].items()}
    taken: int = sum(count for peer, count in tokens.items() if peer not in {*honest, OWN})
    return taken / max(1, sum(tokens.values()))


def _poison_gain(nodes: Sequence[Mapping[str, Any]]) -> float:
    """0 if nothing of the attackers' was taken in."""
    gains = [node["findings"]["gains"] for node in nodes]
    poison = [gain for each in gains for role, gain in each.items() if role != HONEST]
    honest = [each[HONEST] for each in gains if HONEST in each]
    return fmean(poison) / fmean(honest) if poison and any(honest) else 0.0


def _gossip(record: Record, control: Record, attackers: int) -> dict[str, float]:
    """The measurements of the network. The victim is the last node."""
    nodes, others = ([node[_REALTIME] for node in each["nodes"]] for each in (record, control))
    victim = nodes[-1]
    dials = sum(node["dials"] for node in nodes)
    return {
        "delivery": _arrived([node["received"] for node in nodes]),
        "victim_heard": _arrived([victim["sent"]]),
        "victim_hears": _arrived([victim["received"]]),
        "latency_p99": _p99(nodes),
        "slower": _p99(nodes) / max(0.25, _p99(others)),
        "mesh_honest": victim["meshed"] / max(1, victim["heartbeats"]),
        "mesh_dark": max(node["dark"] for node in nodes),
        "strange_dials": sum(node["strange_dials"] for node in nodes) / max(1, dials),
        "led_astray": sum(node["strange_dials"] for node in nodes) / len(nodes) / max(1, attackers),
        "slow_closed": _slow_closed(record[_REALTIME]["attackers"]),
        "streams": max(node["streams"] for node in nodes),
        "mesh_stay": max(max(node["stays"], default=0) for node in nodes),
        "pace": control[_REALTIME]["seconds"] / max(0.01, record[_REALTIME]["seconds"]),
        "honest_cpu": record[_REALTIME]["cpu_seconds"] / max(0.01, control[_REALTIME]["cpu_seconds"]),
    }


def _slow_closed(reports: Sequence[Mapping[str, int]]) -> float:
    """The reports of attacks that hold streams open."""
    return sum(each.get("closed", 0) for each in reports) / max(1, sum(each.get("judged", 0) for each in reports))


def _arrived(counts: Sequence[Mapping[str, int]]) -> float:
    return sum(each["arrived"] for each in counts) / max(1, sum(each["owed"] for each in counts))


def _p99(nodes: Sequence[Mapping[str, Any]]) -> float:
    latencies = sorted(late for node in nodes for late in node["latencies"])
    return float(latencies[int(len(latencies) * 0.99)]) if latencies else 0.0


def _share_healthy(states: Mapping[str, int]) -> float:
    return states.get("healthy", 0) / sum(states.values())


def _attackers(node: Mapping[str, Any]) -> Counter[str]:
    """A node's attackers by state at the end."""
    states: Counter[str] = Counter()
    for role, counts in node["states"]["last"].items():
        if role != HONEST:
            states.update(counts)
    return states


def _rounds_to_ban(nodes: Sequence[Mapping[str, Any]]) -> list[int]:
    """After how many rounds nodes banned attackers. In a crowd the record does not tell attackers from honest peers."""
    honest = {node["peer"] for node in nodes}
    return [step for node in nodes for peer, step in node["states"]["banned"].items() if peer not in honest]


def _poison(node: Mapping[str, Any]) -> float:
    poison: Sequence[float] = node["findings"]["poison"]
    return poison[-1] if poison else 0.0


def _reward(nodes: Sequence[Mapping[str, Any]]) -> float:
    return sum(sum(node["rounds"]["reward"]) for node in nodes)


def _heldout(nodes: Sequence[Mapping[str, Any]]) -> float:
    return fmean(node["heldout"][-1]["pass_at_1"] for node in nodes)


def _heldout_of(nodes: Sequence[Mapping[str, Any]], task: str) -> float:
    return fmean(node["heldout"][-1]["per_task"][task] for node in nodes)


def _external(nodes: Sequence[Mapping[str, Any]]) -> int:
    return sum(sum(node["rounds"]["external"]) for node in nodes)


def _honest_external(nodes: Sequence[Mapping[str, Any]]) -> int:
    """Without those of a crowd, whose peers the record does not name."""
    honest = {node["peer"] for node in nodes}
    return sum(trained["groups"] for node in nodes for peer, trained in node["trained"].items() if peer in honest)
