"""Tells in plain words, from stored facts, what became of a rollout and why a peer stands as it does."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sapo_node.database import Database
from sapo_node.journal import Entry, Fate, Journal, Refusal
from sapo_node.reasons import REASONS
from sapo_node.trust import policy
from sapo_node.trust.ledger import Account, account_of
from sapo_node.trust.policy import Standing
from sapo_protocol import LocalError

_LEAST_CHARACTERS = 6
_ASKED_REFUSALS = 50
_SHOWN_HABITS = 10


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, for people and as facts."""

    text: str
    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"text": self.text, **self.facts}


def envelope(database: Database, envelope_id: str) -> Told:
    """What became of the envelope whose id begins so. Raises LocalError where nothing is known of it."""
    envelope_id = envelope_id.lower()
    if len(envelope_id) < _LEAST_CHARACTERS or not set(envelope_id) <= set("0123456789abcdef"):
        raise LocalError(f"give at least {_LEAST_CHARACTERS} hexadecimal characters of an envelope's id")
    journal = Journal(database)
    entries, refusals = journal.of_envelope(envelope_id), journal.refusals(_ASKED_REFUSALS, envelope_id=envelope_id)
    if not entries and not refusals:
        raise LocalError(
            f"nothing is known of {envelope_id}: it never came here, waits unverified, or was long ago; "
            f"the dashboard shows what came of late"
        )
    lines = [line for entry in entries for line in _of_entry(entry)]
    if entries:
        first = entries[0]
        lines.insert(0, f"round {first.counter} of epoch {first.epoch}, by {first.peer}")
    lines += _of_refusals(refusals)
    facts = {"groups": [asdict(entry) for entry in entries], "refusals": [asdict(each) for each in refusals]}
    return Told("\n".join(lines), facts)


def _of_entry(entry: Entry) -> list[str]:
    rewards = [each["reward"] for each in entry.facts.get("completions", ())]
    what = f"{entry.facts['dataset']}, {sum(rewards)} of {len(rewards)} right" if rewards else "not scored"
    lines = [f"group {entry.k} ({what}): {entry.fate}{f', {entry.why}' if entry.why else ''}"]
    if entry.fate is Fate.TRAINED:
        weight, tokens = entry.facts["weight"], entry.facts["tokens"]
        lines.append(f"    in step {entry.step}, with weight {weight:g}: {tokens} tokens of it were trained on")
        if masked := entry.facts.get("masked"):
            lines.append(f"    filters masked {masked} tokens of its correct completions")
        lines += _of_gates([entry])
    return [*lines, *_reason(entry.why)]


def _of_gates(entries: Sequence[Entry]) -> list[str]:
    """What gates kept out of the answers of groups that were drawn."""
    completions = [each for entry in entries for each in entry.facts["completions"]]
    right = sum(each["reward"] for each in completions)
    lines = []
    habits = Counter(word for each in completions for word in each.get("silent", ()))
    if habits:
        often = ", ".join(f"{word!r} {count} times" for word, count in habits.most_common(_SHOWN_HABITS))
        lines.append(f"    not taught, as a habit that does not pay here: {often}")
    kept_out = Counter((each["gate"], each.get("partly", False)) for each in completions if "gate" in each)
    for (gate, partly), count in kept_out.most_common():
        part = "a part of " if partly else ""
        lines.append(f"    the {gate} kept out {part}{count} of its {right} right answers")
        lines += _reason(gate)
    return lines


def _of_refusals(refusals: Sequence[Refusal]) -> list[str]:
    lines: list[str] = []
    for why, times in Counter(each.why for each in refusals).items():
        senders = len({each.sender for each in refusals if each.why == why})
        lines.append(f"refused {times} times, from {senders} peers: {why}")
        lines += _reason(why)
    return lines


def _reason(why: str) -> list[str]:
    reason = REASONS.get(why)
    return [f"    {reason.means}", f"    {reason.advice}"] if reason else []


def peer(database: Database, name: str) -> Told:
    """Why a peer stands as it does; the end of its id is enough. Raises LocalError where none or many are meant."""
    wanted = name.removeprefix("…")
    found = database.rows("SELECT peer FROM ledger WHERE substr(peer, -length(?)) = ?", wanted, wanted)
    if len(found) != 1:
        raise LocalError(
            f"{len(found)} peers end in {name!r}; `sapo-node peers` lists those that are known"
            if wanted
            else "give a peer id, or its end"
        )
    account = account_of(database, found[0][0])
    groups, tokens = database.row("SELECT groups, tokens FROM trained WHERE peer = ?", account.peer) or (0, 0)
    lines = [account.peer, *_of_account(account)]
    if database.row("SELECT 1 FROM evidence WHERE peer = ?", account.peer):
        lines.append("It signed two contents for one round: `sapo-node evidence PEER` shows both. That ban never ends.")
    lines.append(f"Trained on: {groups} groups of it, {tokens} tokens.")
    entries = Journal(database).of_peer(account.peer)
    for (fate, why), count in Counter((each.fate, each.why) for each in entries).most_common():
        lines.append(f"Of late, {count} groups {fate}{f': {why}' if why else ''}")
        lines += _of_gates([each for each in entries if each.fate is fate]) if fate is Fate.TRAINED else _reason(why)
    facts = {
        "peer": account.peer,
        "standing": account.standing.value,
        "trust": round(account.trust, 3),
        "good": round(account.evidence.good, 3),
        "bad": round(account.evidence.bad, 3),
        "earned": account.earned,
        "trained_groups": groups,
        "trained_tokens": tokens,
    }
    return Told("\n".join(lines), facts)


def _of_account(account: Account) -> list[str]:
    evidence = account.evidence
    known = (
        f"Standing: {account.standing}, trust {account.trust:.2f}: groups that held weigh {evidence.good:.1f}, "
        f"offences {evidence.bad:.1f} (what is long ago weighs less)."
    )
    return [known, _outlook(account)]


def _outlook(account: Account) -> str:
    """What the standing means, and what would change it."""
    match account.standing:
        case Standing.HEALTHY:
            return f"Its groups are drawn by trust and age, at most {policy.PEER_SHARE:.0%} of a round from one peer."
        case Standing.NEWCOMER:
            left = max(0, policy.HEALTHY_AFTER - account.earned)
            return (
                f"Newcomers together have {policy.NEWCOMER_SHARE:.0%} of a round. It needs {left} more verified "
                f"groups, of which at most {policy.EARNED_PER_EPOCH} count in an epoch, and then a place among the few "
                f"that are promoted in each; or `trusted` in this node's configuration."
            )
        case Standing.PROBATION:
            return (
                f"It lied, or passed on what no honest peer sends, and counts as a newcomer until its trust is "
                f"{policy.RECOVERED_TRUST:g} again: true groups raise it."
            )
        case Standing.BANNED:
            return (
                f"It lied too often, or `banned` in this node's configuration names it: nothing of it is taken for "
                f"{policy.BAN_EPOCHS} epochs from the ban on, nor while it is named."
            )
