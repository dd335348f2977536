"""Explains, from stored facts, what became of a rollout and why a peer has its state."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sapo_node.observability.journal import Entry, Fate, Journal, Refusal
from sapo_node.observability.reasons import reason_for
from sapo_node.storage.database import Database
from sapo_node.trust import constants
from sapo_node.trust.accounts import Account, Offence, account_of, offences_of
from sapo_node.trust.constants import PeerState
from sapo_protocol import LocalError, Manifest, epoch_start

_LEAST_CHARACTERS = 6
_ASKED_REFUSALS = 50
_WEEK_SECONDS = 6 * 86_400


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
    what = f"{entry.facts['dataset']}, {sum(rewards)} of {len(rewards)} correct" if rewards else "not scored"
    lines = [f"group {entry.k} ({what}): {entry.fate}{f', {entry.why}' if entry.why else ''}"]
    if entry.fate is Fate.TRAINED:
        weight, tokens = entry.facts["weight"], entry.facts["tokens"]
        lines.append(f"    in step {entry.step}, with weight {weight:g}: {tokens} tokens of it were trained on")
        if masked := entry.facts.get("masked"):
            lines.append(f"    filters masked {masked} tokens of its correct completions")
        lines += _of_filters([entry])
    return [*lines, *_reason(entry.why)]


def _of_filters(entries: Sequence[Entry]) -> list[str]:
    """What filters masked in the completions of groups that were drawn."""
    completions = [each for entry in entries for each in entry.facts["completions"]]
    right = sum(each["reward"] for each in completions)
    lines = []
    if phrases := len(_masked_phrases(entries)):
        said = f"{phrases} phrases masked: they earn" if phrases > 1 else "1 phrase masked: it earns"
        lines.append(f"    {said} nothing extra here (--json lists them)")
    kept_out = Counter((each["filter"], each.get("partly", False)) for each in completions if "filter" in each)
    for (filter_name, partly), count in kept_out.most_common():
        part = "a part of " if partly else ""
        lines.append(f"    the {filter_name} masked {part}{count} of its {right} correct completions")
        lines += _reason(filter_name)
    return lines


def _masked_phrases(entries: Sequence[Entry]) -> Counter[str]:
    """The phrases that the filter `n-gram` masked in completions, and how often it masked each."""
    return Counter(
        phrase for entry in entries for each in entry.facts.get("completions", ()) for phrase in each.get("silent", ())
    )


def _of_refusals(refusals: Sequence[Refusal]) -> list[str]:
    lines: list[str] = []
    for why, times in Counter(each.why for each in refusals).items():
        senders = len({each.sender for each in refusals if each.why == why})
        lines.append(f"refused {times} times, from {senders} peers: {why}")
        lines += _reason(why)
    return lines


def _reason(why: str) -> list[str]:
    reason = reason_for(why)
    return [f"    {reason.means}", f"    {reason.advice}"] if reason else []


def peer(database: Database, name: str, manifest: Manifest) -> Told:
    """Why a peer of the swarm stands as it does; the beginning or the end of its id is enough.

    Raises LocalError where none or many are meant.
    """
    account = account_of(database, _peer_named(database, name))
    offences = offences_of(database, account.peer)
    has_equivocated = database.row("SELECT 1 FROM evidence WHERE peer = ?", account.peer) is not None
    ends = None
    if account.state is PeerState.BANNED and not account.named and not has_equivocated:
        ends = epoch_start(manifest, account.since + constants.BAN_EPOCHS)
    groups, tokens = database.row("SELECT groups, tokens FROM trained WHERE peer = ?", account.peer) or (0, 0)
    lines = [account.peer, *_of_account(account, offences, ends, has_equivocated=has_equivocated)]
    lines.append(f"Trained on, in all: {groups} of its groups, {tokens} tokens.")
    entries = Journal(database).of_peer(account.peer)
    for (fate, why), count in Counter((each.fate, each.why) for each in entries).most_common():
        lines.append(f"{_groups(count, fate)}{f': {why}' if why else ''}")
        lines += _of_filters([each for each in entries if each.fate is fate]) if fate is Fate.TRAINED else _reason(why)
    facts = {
        "peer": account.peer,
        "tier": account.tier.value,
        "state": account.state.value,
        "named": account.named,
        "offences": [asdict(each) for each in offences],
        "banned_until": ends,
        "trust": round(account.trust, 3),
        "good": round(account.evidence.good, 3),
        "bad": round(account.evidence.bad, 3),
        "earned": account.earned,
        "trained_groups": groups,
        "trained_tokens": tokens,
        "masked_phrases": dict(_masked_phrases(entries).most_common()),
    }
    return Told("\n".join(lines), facts)


def _peer_named(database: Database, name: str) -> str:
    wanted = name.removeprefix("…")
    if not wanted:
        raise LocalError("give a peer id, its beginning or its end; `sapo-node peers` lists those that are known")
    rows = database.rows(
        "SELECT peer FROM ledger WHERE substr(peer, -length(?1)) = ?1 OR substr(peer, 1, length(?1)) = ?1 "
        "UNION SELECT peer FROM named WHERE substr(peer, -length(?1)) = ?1 OR substr(peer, 1, length(?1)) = ?1",
        wanted,
    )
    if len(rows) != 1:
        many = f"{len(rows)} peers begin or end" if rows else "no peer begins or ends"
        raise LocalError(f"{many} with {wanted!r}; `sapo-node peers` lists those that are known")
    found: str = rows[0][0]
    return found


def _groups(count: int, fate: Fate) -> str:
    """The beginning of a sentence: how many groups, and what became of them."""
    is_one = count == 1
    became = {
        Fate.OWN: "is its own" if is_one else "are its own",
        Fate.WAITS: "waits" if is_one else "wait",
        Fate.TRAINED: "was trained on" if is_one else "were trained on",
        Fate.LEFT_OUT: "was left out" if is_one else "were left out",
    }
    return f"{count} group{'' if is_one else 's'} {became[fate]}"


def _of_account(
    account: Account, offences: Sequence[Offence], ends: float | None, *, has_equivocated: bool
) -> list[str]:
    """`ends` is the Unix time at which a ban for offences ends."""
    evidence = account.evidence
    seen = [f"{each}, the last {moment(each.last)}" for each in offences] or ["no offence seen"]
    if ends is not None:
        seen.append(f"banned until {moment(ends)}")
    state = (
        f"State: {account.state}; tier: {account.tier}; trust {account.trust:.2f}: "
        f"groups that held weigh {evidence.good:.1f}, offences {evidence.bad:.1f} (what is long ago weighs less)."
    )
    lines = [state, f"Seen of it: {'; '.join(seen)}."]
    if has_equivocated:
        lines.append(
            "It signed two contents for one round: `sapo-node peers PEER --evidence` shows both. That ban never ends."
        )
    elif account.named:
        lines.append(_of_word(account.state))
    else:
        lines.append(_outlook(account))
    return lines


def _of_word(state: PeerState) -> str:
    """What the operator's word means, and how to take it back."""
    key = "banned" if state is PeerState.BANNED else "trusted"
    meaning = "nothing of it is taken" if state is PeerState.BANNED else "it is healthy whatever it earned"
    return f"It is named in `{key}` of this node's configuration: {meaning} until that line is removed."


def _outlook(account: Account) -> str:
    """What the state means, and what would change it."""
    match account.state:
        case PeerState.HEALTHY:
            return "Its rollouts have places of their own in the queue. Its groups are drawn by trust and age."
        case PeerState.UNTRUSTED:
            left = max(0, constants.HEALTHY_AFTER - account.earned)
            return (
                f"All strangers together have the strangers' share of a round. It becomes healthy after {left} more "
                f"verified groups, of which at most {constants.EARNED_PER_EPOCH} count in an epoch, or if it is named "
                f"in `trusted` of this node's configuration."
            )
        case PeerState.PROBATION:
            return (
                f"It is verified after all strangers until its trust is {constants.RECOVERED_TRUST:g}: verified groups "
                f"raise it. Then it is untrusted, and has earned nothing yet."
            )
        case PeerState.BANNED:
            return "Nothing of it is taken until the ban ends."


def moment(at: float) -> str:
    """A Unix time in this machine's time zone: the hour for today, with the day of the week for the days around it."""
    local = time.localtime(at)
    if local[:3] == time.localtime()[:3]:
        return time.strftime("%H:%M", local)
    return time.strftime("%a %H:%M" if abs(at - time.time()) < _WEEK_SECONDS else "%d %b %Y %H:%M", local)
