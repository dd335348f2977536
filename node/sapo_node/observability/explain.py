"""Explains, from stored facts, what became of a rollout and why a peer has its state."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from sapo_node.groups import book
from sapo_node.groups.book import KEPT_GROUPS, KEPT_REFUSALS, Refusal
from sapo_node.groups.messages import reason_of
from sapo_node.groups.record import Entry, Outcome, State
from sapo_node.observability.history import History
from sapo_node.observability.reasons import reason_for
from sapo_node.storage.database import Database
from sapo_node.trust import constants
from sapo_node.trust.constants import PeerState
from sapo_node.trust.decisions import COMMAND, CONFIG, EVIDENCE, decisions
from sapo_node.trust.ledger import Account, Cause, Offence, account_of, cause_of, offences_of
from sapo_protocol import LocalError, Manifest, epoch_start

SHOWN_CHARACTERS = 1_000
"""Of each completion."""
_OF_GROUP = ("dataset", "prompt", "completions", "levels", "outcome")


def as_dict(entry: Entry) -> dict[str, Any]:
    """Return an entry of the book as JSON, with what is known of its texts under `facts`."""
    plain = {each.name: getattr(entry, each.name) for each in fields(entry) if each.name not in _OF_GROUP}
    return {**plain, "facts": facts_of(entry)}


def facts_of(entry: Entry) -> dict[str, Any]:
    """Return dataset, prompt, `levels` (L) and completions, and after its step weight, tokens (trained on) and masked
    (tokens of its correct completions). Empty for a group that was never scored.

    A completion has its text, its level and whether it is correct, after the step its advantage, and what was not
    trained on of it: `silent` (the masked phrases), `filter` (which rejected it) and `spans` (the masked characters of
    its text).
    """
    if not entry.completions:
        return {}
    shown: list[dict[str, Any]] = [
        {"text": each.text[:SHOWN_CHARACTERS], "level": level, "correct": is_correct}
        for each, level, is_correct in zip(entry.completions, entry.levels.each, entry.levels.correct, strict=True)
    ]
    facts: dict[str, Any] = {
        "dataset": entry.dataset,
        "prompt": entry.prompt,
        "levels": entry.levels.top,
        "completions": shown,
    }
    outcome = entry.outcome
    if outcome is None:
        return facts
    for each, advantage in zip(shown, outcome.advantages, strict=False):
        each["advantage"] = round(advantage, 3)
    for number, (each, spans) in enumerate(zip(shown, entry.masked_spans(), strict=True)):
        if phrases := _phrases(each["text"], outcome, number):
            each["silent"] = phrases
        if number in outcome.rejected:
            each["filter"] = reason_of(outcome.rejected[number])
        within = [[begin, min(end, len(each["text"]))] for begin, end in spans if begin < len(each["text"])]
        if within:
            each["spans"] = within
    if entry.peer:
        facts |= {"weight": round(outcome.weight, 3), "tokens": outcome.tokens, "masked": outcome.masked}
    return facts


def _phrases(text: str, outcome: Outcome, number: int) -> list[str]:
    spans = outcome.masked_spans[number] if outcome.masked_spans else ()
    return [text[begin:end] for begin, end in spans if begin < len(text)]


_LEAST_CHARACTERS = 6
_WEEK_SECONDS = 6 * 86_400
_NEWEST = 5
"""Envelopes of a peer that are listed."""
_SHOWN_CHARACTERS = 16
"""Characters of an envelope's id, as the page shows it: enough to tell envelopes apart."""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, for people and as facts."""

    text: str
    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"text": self.text, **self.facts}


def envelope(database: Database, envelope_id: str) -> Told:
    """Explain what became of the envelope whose id begins so. Raises LocalError if the node does not know it."""
    envelope_id = envelope_id.lower()
    if len(envelope_id) < _LEAST_CHARACTERS or not set(envelope_id) <= set("0123456789abcdef"):
        raise LocalError(f"give at least {_LEAST_CHARACTERS} hexadecimal characters of an envelope's id")
    entries = book.of_envelope(database, envelope_id)
    refusals = book.refusals(database, KEPT_REFUSALS, envelope_id=envelope_id)
    waiting = book.waiting_of(database, envelope_id)
    signed = () if entries or refusals or waiting else _own(database, envelope_id)
    known = {each.envelope_id for each in entries} | {each.envelope_id for each in refusals} | {*waiting}
    known |= {own for own, *_ in signed}
    if not known:
        raise LocalError(
            f"the node knows no envelope {envelope_id}: it did not arrive, or is older than what the node remembers; "
            f"the page shows the newest"
        )
    if len(known) > 1:
        first, second, *_ = sorted(known)
        raise LocalError(
            f"{len(known)} envelopes begin with {envelope_id!r}, as {first} and {second}; give more characters"
        )
    rounds = [(epoch, counter, "this node") for _, epoch, counter in signed]
    rounds += [(each.epoch, each.counter, each.peer) for each in entries[:1]]
    entries += [each for _, epoch, counter in signed for each in book.local_round(database, epoch, counter)]
    lines = [f"round {counter} of epoch {epoch}, by {by}" for epoch, counter, by in rounds]
    lines += ["groups of it wait for verification" for _ in waiting]
    lines += [line for entry in entries for line in _of_entry(entry)]
    lines += _of_refusals(refusals)
    facts = {
        "waits": bool(waiting),
        "groups": [as_dict(entry) for entry in entries],
        "refusals": [asdict(each) for each in refusals],
    }
    return Told("\n".join(lines), facts)


def _own(database: Database, prefix: str) -> list[tuple[str, int, int]]:
    """The envelopes of this node whose id begins with `prefix`, each with its epoch and counter."""
    asked = "SELECT lower(hex(envelope_id)), epoch, counter FROM signed WHERE lower(hex(envelope_id)) LIKE ? || '%'"
    return [(own, epoch, counter) for own, epoch, counter in database.rows(asked, prefix)]


def _of_entry(entry: Entry) -> list[str]:
    levels = entry.levels
    what = f"{entry.dataset}, {levels.right} of {len(levels.each)} correct" if levels.each else "not scored"
    if levels.top > 1 and levels.each:
        what = f"{what}, mean reward {levels.mean:.2f} of {levels.top} levels"
    lines = [f"group {entry.k} ({what}): {entry.state}{f', {entry.why}' if entry.why else ''}"]
    if entry.state is State.TRAINED and entry.outcome:
        weight, tokens = round(entry.outcome.weight, 3), entry.outcome.tokens
        lines.append(f"    in step {entry.step}, with weight {weight:g}: {tokens} tokens of it were trained on")
        if masked := entry.outcome.masked:
            lines.append(f"    filters masked {masked} tokens of its correct completions")
        lines += _of_filters([entry])
    return [*lines, *_reason(entry.why)]


def _of_filters(entries: Sequence[Entry]) -> list[str]:
    """Return lines about the masks and rejections of drawn groups."""
    completions = _completions(entries)
    right = sum(each["correct"] for each in completions)
    lines = []
    if phrases := len(_masked_phrases(entries)):
        said = f"{phrases} phrases" if phrases > 1 else "1 phrase"
        lines.append(f"    the n-gram filter masked {said}, so the node does not learn them (--json lists them)")
    for filter_name, count in Counter(each["filter"] for each in completions if "filter" in each).most_common():
        lines.append(f"    the {filter_name} rejected {count} of its {right} correct completions")
        lines += _reason(filter_name)
    return lines


def _masked_phrases(entries: Sequence[Entry]) -> Counter[str]:
    """The number of times that the n-gram filter masked each phrase."""
    return Counter(phrase for each in _completions(entries) for phrase in each.get("silent", ()))


def _completions(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [each for entry in entries for each in facts_of(entry).get("completions", ())]


def _of_refusals(refusals: Sequence[Refusal]) -> list[str]:
    lines: list[str] = []
    for why, times in Counter(each.why for each in refusals).items():
        senders = len({each.sender for each in refusals if each.why == why})
        often, by = f"{times} times" if times > 1 else "once", f"{senders} peers" if senders > 1 else "1 peer"
        lines.append(f"refused {often}, from {by}: {why}")
        lines += _reason(why)
    return lines


def _reason(why: str) -> list[str]:
    reason = reason_for(why)
    return [f"    {reason.means}", f"    {reason.advice}"] if reason else []


def peer(database: Database, name: str, manifest: Manifest) -> Told:
    """Explain the state of a peer of the swarm. `name` is the beginning or the end of its id.

    Raises LocalError if no known peer has it, or several have.
    """
    return known_peer(database, peer_named(database, name), manifest)


def known_peer(database: Database, peer: str, manifest: Manifest) -> Told:
    """Explain why the peer of this id has its state."""
    account = account_of(database, peer)
    cause = cause_of(database, account, partial(epoch_start, manifest))
    offences = offences_of(database, account.peer)
    groups, tokens = database.row("SELECT groups, tokens FROM trained WHERE peer = ?", account.peer) or (0, 0)
    lines = [account.peer, *_of_account(account, cause, offences)]
    lines.append(f"Since the state was made, {groups} of its groups were trained on, with {tokens} tokens.")
    if account.acceptance.share < 1:
        lines.append(f"Of its groups that the filters judged lately, they accepted {account.acceptance.share:.0%}.")
    entries = book.of_peer(database, account.peer)
    if entries:
        lines.append(f"Of the newest {KEPT_GROUPS:,} groups of all peers, {len(entries)} are of this peer:")
    for (state, why), count in Counter((each.state, each.why) for each in entries).most_common():
        lines.append(f"{_groups(count, state)}{f': {why}' if why else ''}")
        of_state = [each for each in entries if each.state is state]
        lines += _of_filters(of_state) if state is State.TRAINED else _reason(why)
    envelopes = list(dict.fromkeys(each.envelope_id for each in entries))[:_NEWEST]
    if envelopes:
        shown = ", ".join(each[:_SHOWN_CHARACTERS] for each in envelopes)
        lines.append(f"Its newest rollouts: {shown}. `sapo-node why ENVELOPE_ID` tells what became of one.")
    facts = {
        "peer": account.peer,
        "tier": account.tier.value,
        "state": account.state.value,
        "decided_by": cause.source,
        "why": cause.why,
        "since": cause.since,
        "until": cause.until,
        "offences": [asdict(each) for each in offences],
        "trust": round(account.trust, 3),
        "good": round(account.evidence.good, 3),
        "bad": round(account.evidence.bad, 3),
        "earned": account.credited,
        "accepted": round(account.acceptance.share, 3),
        "trained_groups": groups,
        "trained_tokens": tokens,
        "envelopes": envelopes,
        "masked_phrases": dict(_masked_phrases(entries).most_common()),
    }
    return Told("\n".join(lines), facts)


def peer_named(database: Database, name: str) -> str:
    """The known peer whose id begins or ends with `name`. Raises LocalError if there is none, or several."""
    wanted = name.removeprefix("…")
    if not wanted:
        raise LocalError("give a peer id, its beginning or its end; `sapo-node peers` lists those that are known")
    known: set[str] = {peer for (peer,) in database.rows("SELECT peer FROM ledger UNION SELECT peer FROM evidence")}
    known |= {*decisions(database), *History(database).session().get("connected", ())}
    found = [peer for peer in known if peer.startswith(wanted) or peer.endswith(wanted)]
    if len(found) != 1:
        many = f"{len(found)} peers begin or end" if found else "no peer begins or ends"
        raise LocalError(f"{many} with {wanted!r}; `sapo-node peers` lists those that are known")
    return found[0]


def _groups(count: int, state: State) -> str:
    """The beginning of a sentence: the number of groups and their state."""
    is_one = count == 1
    became = {
        State.OWN: "is its own" if is_one else "are its own",
        State.VERIFIED: "is on offer" if is_one else "are on offer",
        State.DRAWN: "is in the batch of a step" if is_one else "are in the batch of a step",
        State.TRAINED: "was trained on" if is_one else "were trained on",
        State.LEFT_OUT: "was left out" if is_one else "were left out",
    }
    return f"{count} group{'' if is_one else 's'} {became[state]}"


def _of_account(account: Account, cause: Cause, offences: Sequence[Offence]) -> list[str]:
    evidence = account.evidence
    seen = "; ".join(f"{each}, the last {moment(each.last)}" for each in offences) or "no offence"
    trust = (
        f"Tier: {account.tier}. Trust {account.trust:.2f}: its verified groups weigh {evidence.good:.1f} and its "
        f"offences {evidence.bad:.1f}. Each new group or offence lowers the weight of the older ones."
    )
    return [_of_state(account, cause), _outlook(account, cause), trust, f"Seen of it: {seen}."]


def _of_state(account: Account, cause: Cause) -> str:
    """Return a sentence with the state, its cause, its beginning and its end."""
    since = f" since {moment(cause.since)}" if cause.since else ""
    is_banned = account.state is PeerState.BANNED
    by = {
        COMMAND: f" by `sapo-node peers {'ban' if is_banned else 'trust'}`",
        CONFIG: f" by `{'banned' if is_banned else 'trusted'}` in the configuration",
        EVIDENCE: "",
    }[cause.source]
    why = f": {cause.why}" if cause.why else ""
    ends = f"; ends {moment(cause.until)}" if cause.until else ""
    return f"State: {account.state}{since}{by}{why}{ends}."


def _outlook(account: Account, cause: Cause) -> str:
    """Return the meaning of the state, and what would change it."""
    if account.decision and cause.source != EVIDENCE:
        is_banned = account.state is PeerState.BANNED
        meaning = "The node takes nothing of it" if is_banned else "It is a friend, whatever it earned,"
        key, verb = ("banned", "unban") if is_banned else ("trusted", "untrust")
        ends = {
            COMMAND: f"`sapo-node peers {verb} PEER` takes that back",
            CONFIG: f"it is no longer in `{key}` of the configuration, and the node starts again",
        }[cause.source]
        return f"{meaning} until {ends}."
    match account.state:
        case PeerState.HEALTHY:
            return "Its rollouts have places of their own in the queue. Its groups are drawn by trust and age."
        case PeerState.UNTRUSTED:
            return (
                f"All strangers together have the strangers' share of a round. {_until_healthy(account)} `sapo-node "
                f"peers trust PEER` makes it a friend at once."
            )
        case PeerState.PROBATION:
            return (
                f"It is verified after all strangers until its trust is {constants.RECOVERED_TRUST:g}: verified groups "
                f"raise it. Then it is untrusted, and has earned nothing yet."
            )
        case PeerState.BANNED if cause.until is None:
            return "The node takes nothing of it, for good: `sapo-node peers PEER --evidence` shows both contents."
        case PeerState.BANNED:
            return "The node takes nothing of it until the ban ends. `sapo-node peers unban PEER` ends it now."


def _until_healthy(account: Account) -> str:
    """Return what an untrusted peer needs to become healthy."""
    if (left := constants.HEALTHY_AFTER - account.credited) > 0:
        return (
            f"It becomes healthy after {left} more verified groups, of which at most {constants.EARNED_PER_EPOCH} "
            f"count in an epoch."
        )
    if account.trust < constants.RECOVERED_TRUST:
        return (
            f"It becomes healthy when an epoch begins and its trust is {constants.RECOVERED_TRUST:g} again: verified "
            f"groups raise it."
        )
    return "It becomes healthy when the next epoch begins."


def moment(at: float) -> str:
    """A Unix time in this machine's time zone: the hour for today, with the day of the week for the days around it."""
    try:
        local = time.localtime(at)
    except (OverflowError, ValueError, OSError):
        return "at no time of this calendar"  # a peer may have named the number
    if local[:3] == time.localtime()[:3]:
        return time.strftime("%H:%M", local)
    return time.strftime("%a %H:%M" if abs(at - time.time()) < _WEEK_SECONDS else "%d %b %Y %H:%M", local)
