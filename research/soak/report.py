"""The result of a soak: slopes with their intervals, recoveries, and lines of the logs without an explanation."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from scipy.stats import linregress, t

from research.soak.play import Soak

WARM = 0.2
"""Share of the time before growth is measured: caches fill, and pools reach their bounds."""
BLOCKS = 12
"""Number of means to which a slope is fitted: neighbouring samples are not independent."""
LEVEL = 0.95
MEBIBYTE = 1024.0 * 1024.0

EXPLAINED = {
    "peers come and go": ("connected to {}", "lost {}"),
    "a peer sent what gossip forbids": ("{} sent malformed data ({}), {} so far",),
    "a learner or sandbox was killed": (
        "the {} process ended; next start in {} s",
        "the {} process ended before it was ready",
        "the {} process died while it worked on a request",
    ),
    "a round met a dead process": ("round failed, {} in a row: {}",),
    "a learner resumes": (
        "the learner failed at step {} ({}); it resumes from its checkpoint",
        "the learner failed while it restored step {} ({}); the node asks again",
        "checkpoint {}",
    ),
    "an evaluation met a dead process": (
        "the held-out evaluation after round {} failed: {}; the node tries again after round {}",
    ),
    "a malicious peer was found out": ("{} is banned: {}",),
    "a node that was away": (
        "cannot reach bootstrap {} ({}); still trying",
        "bootstrap {} is reachable again",
    ),
    "steps were taken back": ("{} back {} since round {}: {}{}",),
    "a key was made": ("made a new key in {} (mode 0600); this node is {}",),
    "asked to stop": ("stopping{}",),
    "an epoch has no rounds left": ("all {} rounds of this epoch are played; waiting for the next",),
}
"""The lines of a node's log that faults and attackers explain, by meaning. They are the node's own strings, with {} for
each value.
"""

FAILED_TASKS = "{} of {} tasks failed in the sandbox; the first, of {}: {}"
"""A line that ends with the reason, and is explained if the reason is."""

_BEFORE_REASON = re.compile(".+?".join(map(re.escape, FAILED_TASKS.removesuffix("{}").split("{}"))))
_PATTERNS = {
    meaning: re.compile("|".join(".+".join(map(re.escape, form.split("{}"))) for form in forms))
    for meaning, forms in EXPLAINED.items()
}


def report(soak: Soak, folder: Path) -> dict[str, Any]:
    """The figures of a soak, as plain values."""
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    staying = [member.name for member in soak.members if member.stays]
    recovered = [each["recovered"] for each in soak.record.faults]
    lines = [line for member in soak.members for line in _said(member.notices, member.log)]
    explained, unexplained = sorted_out(lines)
    counts: Counter[str] = Counter()
    for member in soak.members:
        counts.update(member.counts)
        member.look()
    banned = set().union(*(member.banned for member in soak.members))
    taken_back = Counter(peer for member in soak.members for peer, *_ in member.taken_back)
    of_nodes = {member.name: taken_back[member.peer] for member in soak.members}
    return {
        "hours": round((samples[-1]["at"] - samples[0]["at"]) / 3600, 3),
        "nodes": len(soak.members),
        "rounds": {member.name: member.step for member in soak.members},
        "rounds_again": {member.name: member.again for member in soak.members},
        "starts": {member.name: member.starts for member in soak.members},
        "faults": dict(Counter(each["fault"] for each in soak.record.faults)),
        "slowest_recovery_seconds": max((each for each in recovered if each is not None), default=None),
        "not_recovered": [each for each in soak.record.faults if each["recovered"] is None],
        "deaths": soak.record.deaths,
        "attackers": soak.record.attackers,
        "banned": len(banned),
        "banned_nodes": [member.name for member in soak.members if member.peer in banned],
        "counts": dict(counts),
        "taken_back_of_nodes": of_nodes,
        "taken_back_of_attackers": taken_back.total() - sum(of_nodes.values()),
        "growth": _growth(samples, staying),
        "disk_mebibytes": {
            member.name: round(max(each["disk"] for each in samples if each["node"] == member.name) / MEBIBYTE, 1)
            for member in soak.members
        },
        "log_lines": explained,
        "unexplained": unexplained,
    }


def _growth(samples: Sequence[dict[str, Any]], staying: Iterable[str]) -> list[dict[str, Any]]:
    """Memory and files at the end, and their growth per hour, for each undisturbed process."""
    series: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for each in samples:
        series[each["node"], each["role"]].append(each)
    first, last = samples[0]["at"], samples[-1]["at"]
    since = first + WARM * (last - first)
    found = []
    for (node, role), rows in sorted(series.items()):
        if node in staying and len(late := [each for each in rows if each["at"] >= since]) >= BLOCKS:
            hours = [(each["at"] - since) / 3600 for each in late]
            memory = [each["rss"] / MEBIBYTE for each in late]
            files = [float(each["files"]) for each in late]
            found.append(
                {
                    "node": node,
                    "process": role,
                    "mebibytes": round(memory[-1], 1),
                    "mebibytes_per_hour": slope(hours, memory),
                    "files": int(files[-1]),
                    "files_per_hour": slope(hours, files),
                }
            )
    return found


def slope(hours: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """Growth per hour with its interval, by least squares over the means of BLOCKS stretches."""
    size = len(hours) // BLOCKS
    blocks = [slice(start * size, (start + 1) * size) for start in range(BLOCKS)]
    xs, ys = ([sum(each[block]) / size for block in blocks] for each in (hours, values))
    fit = linregress(xs, ys)
    error = 0.0 if isnan(fit.stderr) else float(fit.stderr)  # what never changes has none
    half = float(t.ppf((1 + LEVEL) / 2, BLOCKS - 2)) * error
    grown = float(fit.slope)
    return {"slope": round(grown, 2), "low": round(grown - half, 2), "high": round(grown + half, 2)}


def _said(notices: Iterable[str], log: Path) -> list[str]:
    return [*notices, *(log.read_text(errors="replace").splitlines() if log.exists() else ())]


def sorted_out(lines: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The number of log lines by meaning, and the lines without one."""
    explained: Counter[str] = Counter()
    unexplained: Counter[str] = Counter()
    for line in filter(None, lines):
        reason = _BEFORE_REASON.sub("", line, count=1)
        meaning = next((meaning for meaning, pattern in _PATTERNS.items() if pattern.fullmatch(reason)), None)
        if meaning:
            explained[meaning] += 1
        else:
            unexplained[line[:300]] += 1
    return dict(explained.most_common()), dict(unexplained.most_common(50))
