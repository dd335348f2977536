"""Keeps results of runs as small summaries in docs/results, and writes the tables of the pages from them.

python scripts/results.py                      write every table, from `<!-- table: NAME -->` to `<!-- end -->`
python scripts/results.py --check              only compare
python scripts/results.py keep results NAME... summarise results/NAME.json first, and renew the pictures of NAME
python scripts/results.py draw                 draw docs/pictures/keys.svg from the summaries keys and ablation
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from sapo_adversary.experiments import tables as experiments
from sapo_adversary.experiments.summary import LEVEL, SMOOTH, mean_interval, paired_interval
from sapo_adversary.files import to_json
from sapo_adversary.scenarios import table as scenarios
from sapo_adversary.scenarios.keys_plot import draw_keys
from sapo_adversary.scenarios.table import table

ROOT = Path(__file__).parents[1]
RESULTS, PICTURES = ROOT / "docs" / "results", ROOT / "docs" / "pictures"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLE = re.compile(r"(?<=<!-- table: )([\w-]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
Results = Mapping[str, Any]
Cells = Sequence[Results]

HARM = frozenset(
    {"reward_lost", "heldout_lost", "task_lost", "trained_share", "poison_gain", "says_phrase", "honest_healthy"}
)
"""Metrics that the summary of a scenario keeps beside those that its file asks for."""
SHARING = (
    ("eight nodes of the policy in the package", "supply", "8/0", "4/4"),
    ("six weak nodes, correct in 1.4 % of their completions", "balance_weak", "8/0", "4/4"),
    ("six strong nodes, correct in 60 %", "balance_strong", "8/0", "4/4"),
    ("three architectures, three tokenizers, three speeds, joining and leaving", "heterogeneous", "alone", "4/4"),
)
REGIMES = (
    ("packaged policy, rate 1e-4", "rates", "8/0, learning_rate 0.0001", "4/4, learning_rate 0.0001"),
    ("packaged policy, rate 2e-4", "rates", "8/0, learning_rate 0.0002", "4/4, learning_rate 0.0002"),
    ("packaged policy, rate 4e-4", "rates", "8/0, learning_rate 0.0004", "4/4, learning_rate 0.0004"),
    ("policy of Llama's shape", "other_policy", "8/0", "4/4"),
    ("`scarce-4`", "scarcity", "8/0, model scarce-4", "4/4, model scarce-4"),
    ("`scarce-8`", "scarcity", "8/0, model scarce-8", "4/4, model scarce-8"),
    ("three strangers, filters", "three_nodes", "8/0", "4/4"),
    ("the same against 4/0", "three_nodes", "4/0", "4/4"),
    ("three strangers that train with TRL, filters", "three_nodes_trl", "8/0", "4/4"),
    ("the same against 4/0", "three_nodes_trl", "4/0", "4/4"),
    ("three nodes with SmolLM2, filters, against 8/0", "smollm2_swarm", "8/0", "4/4, all filters"),
    ("the same against 4/0", "smollm2_swarm", "4/0", "4/4, all filters"),
)
"""Label, summary, arm alone, arm that shares."""
LEARNT = (
    ("`math-easy`: sums, products, fractions, decimals, equations", "math_easy"),
    ("word problems from a file", "word_problems_experiment"),
)
BALANCE = (
    ("eight nodes of the packaged policy", "supply", "8/0", "4/16"),
    ("six weak", "balance_weak", "8/0", "2/6"),
    ("six strong", "balance_strong", "8/0", "2/6"),
    ("three strong, three weak", "balance_mixed", "8/0", "2/6"),
    ("six, of which four leave", "balance_shrinking", "8/0", "2/6"),
    ("three architectures", "heterogeneous", "alone", None),
)
"""Label, summary, arm alone, arm with more external groups than 4/4."""
CEILING = (
    ("seven weak peers: strong", "ceiling", "strong"),
    ("seven weak peers: weak", "ceiling", "weak"),
    ("five peers, two know a task: strong", "ceiling_complement", "strong"),
    ("five peers, two know a task: those two", "ceiling_complement", "knows base_conversion"),
    ("five peers, two know a task: weak", "ceiling_complement", "weak"),
    ("specialists: three know none", "specialists", "knows none"),
    ("specialists: knows `products`", "specialists", "knows products"),
    ("specialists: knows `base_conversion`", "specialists", "knows base_conversion"),
    ("specialists: knows `spell_backward`", "specialists", "knows spell_backward"),
)
"""Label, summary, role."""
HONEST = (
    ("eight nodes of one policy", "filters", "4/4", "4/4, all filters"),
    ("specialists", "filters_novelty", "4/4", "4/4, all filters"),
    ("three architectures, three tokenizers", "filters_heterogeneous", "4/auto", "4/auto, all filters"),
    ("three nodes with SmolLM2", "smollm2_swarm", "4/4", "4/4, all filters"),
)
"""Label, summary, arm without filters, arm with them."""
TRIED = (
    ("`on-policy`: train on failures of peers, too", "external_objectives", "positive-only", "on-policy"),
    ("drop local zero-advantage groups, 8/0", "sapo_table", "8/0", "8/0+filter"),
    ("2/6 in place of 4/4", "sapo_table", "4/4", "2/6"),
    ("`informative` draw beside a strong node, 8/auto", "ceiling", "8/auto", "8/auto informative"),
    ("`informative` draw, a task is known to two, 8/auto", "ceiling_complement", "8/auto", "8/auto informative"),
    ("`informative` draw among specialists, 4/4", "specialists", "4/4", "4/4 informative"),
    ("replay, a node alone, 40 rounds", "replay", "4/0", "4/0, replay"),
    ("replay beside peers, 40 rounds", "replay", "4/4", "4/4, replay"),
    ("replay, a node alone, 500 rounds", "replay_long", "4/0", "4/0, replay"),
    ("a constant learning rate, 500 rounds", "long", "decay", "constant"),
    ("adapters in the last ten layers of SmolLM2 alone", "smollm2_layers", "all layers", "last ten layers"),
    ("`auto` in place of 4/4, SmolLM2, filters", "smollm2_swarm", "4/4, all filters", "4/auto, all filters"),
)
"""Label, summary, arm as nodes are, arm with what was tried."""
LOOKAHEAD = (
    ("weak: packaged policy", "lookahead_experiment", "next counter, model seed", "best of 8, model seed"),
    (
        "strong: the same after local GRPO",
        "lookahead_experiment",
        "next counter, model strong",
        "best of 8, model strong",
    ),
    ("SmolLM2, 16 rounds", "lookahead_smollm2_experiment", "next counter", "best of 8"),
)
"""Label, summary, arm as nodes are, arm that looks ahead."""
POISONS = (
    *("poison-text-adaptive", "poison-gibberish-adaptive", "poison-trigger-adaptive", "poison-math-adaptive"),
    *("poison-drift-adaptive", "poison-length-adaptive", "poison-slip"),
    *("poison-paraphrase", "poison-alternate", "poison-frame"),
)
SWARMS = ("strangers", "strangers-sybils", "flood", "flood-links")
"""Scenarios that the stand-in learner plays."""
COUNTED: Mapping[str, str] = {
    "says_phrase": "phrase",
    "says_trigger": "token",
    "false_steps": "false equations",
    "longer": "length",
    "heldout_lost": "held-out lost",
    "poison_gain": "advantage",
    "task_lost": "points of a task",
    "reward_lost": "reward lost",
    "of_friends": "gain, relative to that of friends",
    "honest_external": "honest groups, relative to no flood",
}
"""The metrics that judge poison and swarms of strangers; the report explains the words."""
RATIOS = frozenset({"longer", "poison_gain"})
MODELS = (("packaged policy", "bench_learner"), ("SmolLM2-135M", "bench_learner_smollm2"))


def summary_of(results: Results) -> dict[str, Any]:
    """The figures of results that pages show: no curves, no records of single runs."""
    if "experiment" in results:
        arms = {
            arm: _without(figures, {"curves", "carried", "heldout_by_node"}) for arm, figures in results["arms"].items()
        }
        comparisons = {arm: _compared(each) for arm, each in results["comparisons"].items()}
        return {**results, "arms": arms, "comparisons": comparisons}
    if "outcomes" in results:
        return {**{name: results[name] for name in ("command", "version")}, **_played(results)}
    return dict(results)


def _played(results: Results) -> dict[str, Any]:
    """The summary of a matrix: its cells, where it has them."""
    cells = {name: results[name] for name in ("by_keys", "without") if name in results}
    return cells or {"outcomes": [_outcome(each) for each in results["outcomes"]]}


def _without(value: Any, names: Collection[str]) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without(each, names) for name, each in value.items() if name not in names}


def _compared(comparison: Results) -> dict[str, Any]:
    """The gain by horizon is kept as its peak: [rounds, gain]."""
    gains = comparison["gain_by_horizon"]
    known = [-inf if gain is None else gain for gain in gains]
    peak = max(range(min(SMOOTH, len(gains)), len(gains) + 1), key=lambda rounds: known[rounds - 1])
    kept = {name: value for name, value in comparison.items() if name != "gain_by_horizon"}
    roles = {role: _compared(each) for role, each in comparison.get("roles", {}).items()}
    return {**kept, "peak": [peak, gains[peak - 1]], **({"roles": roles} if roles else {})}


def _outcome(outcome: Results) -> dict[str, Any]:
    names = HARM | {each["metric"] for each in outcome["verdicts"]}
    metrics = {
        arm: {name: values for name, values in by_name.items() if name in names}
        for arm, by_name in outcome["metrics"].items()
    }
    return {**_without(outcome, {"curves", "title", "layer"}), "metrics": metrics}


def keep(folder: Path, names: Collection[str]) -> None:
    """Write the summaries of results in a folder, each with the last commit, its date and the SHA-256 of the results.
    Pictures that pages show are replaced.
    """
    said = subprocess.run(
        ["git", "log", "-1", "--abbrev=8", "--format=%h %as"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    commit, date = said.stdout.split()
    for name in names:
        data = (folder / f"{name}.json").read_bytes()
        played = {"commit": commit, "date": date, "results_sha256": hashlib.sha256(data).hexdigest()}
        (RESULTS / f"{name}.json").write_text(to_json({**summary_of(json.loads(data)), **played}), "utf-8")
        picture = folder / f"{name}.svg"
        if picture.exists() and (PICTURES / picture.name).exists():
            shutil.copy(picture, PICTURES)


def load(name: str) -> dict[str, Any]:
    """A summary by its name."""
    summary: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return summary


def _mean(by_seed: Iterable[float], form: str) -> str:
    return format(fmean(by_seed), form)


def _interval(by_seed: Sequence[float], form: str = "+.0%") -> str:
    """The mean, with its interval where there is more than one seed."""
    if len(by_seed) < 2:
        return format(by_seed[0], form)
    found = mean_interval(by_seed, LEVEL)
    digits = int(form[-2]) + 2  # of a share that is told in percent; 0.0 is added for -0
    point, low, high = (format(round(value, digits) + 0.0, form) for value in (found.point, found.low, found.high))
    return f"{point} ({low} to {high})"


def _gain(summary: Results, first: str, second: str) -> str:
    """The gain of the second arm in cumulative reward, paired by seed."""
    known = summary["comparisons"].get(second, {})
    if known.get("with") == first:
        return experiments.gain(known)
    both = (summary["arms"][arm]["cumulative"] for arm in (first, second))
    return _interval([late / early - 1 for early, late in zip(*both, strict=True)])


def _played_by(name: str) -> str:
    """The command of a summary without its options, linked to it; experiments by their name alone."""
    command = load(name)["command"].removeprefix("sapo-adversary experiment ").partition(" --")[0]
    return f"[`{command}`](docs/results/{name}.json)"


def values(metric: str, by_seed: Iterable[float]) -> str:
    """The values of a metric in a cell: shares in percent, points whole, ratios with two decimals."""
    if metric in RATIOS:
        return ", ".join(f"{value:.2f}" for value in by_seed)
    if metric == "task_lost":
        return ", ".join(f"{100 * value:.0f}" for value in by_seed)
    return ", ".join(f"{round(100 * value, 1) + 0.0:.1f}%" for value in by_seed)


def sharing() -> str:
    """The gain of sharing in four swarms."""
    rows = []
    for label, name, alone, shared in SHARING:
        summary = load(name)
        spent = [sum(summary["arms"][arm]["generated_tokens"]) for arm in (alone, "4/auto")]
        gains = (experiments.gain(summary["comparisons"][arm]) for arm in (shared, "4/auto"))
        rows.append((label, *gains, f"{spent[1] / spent[0]:.2f}"))
    return table(
        ("swarm", "4 local, 4 external (4/4)", "4 local, external `auto`", "tokens generated"), rows, left=(0,)
    )


def arms(name: str, *columns: int) -> str:
    """The arms of an experiment, with these columns of the table that the experiment prints."""
    summary = load(name)
    lines = [[line[place] for place in columns] for line in (experiments.header(summary), *experiments.rows(summary))]
    return table(lines[0], lines[1:], left=(0,))


def compared(rows: Iterable[tuple[str, str, str, str]], what: str) -> str:
    """The second arm of each row against the first."""
    lines = []
    for label, name, first, second in rows:
        summary = load(name)
        before, after = (summary["arms"][arm] for arm in (first, second))
        held = [each["heldout_final"] for each in (before, after)]
        more = paired_interval(held[0], held[1], LEVEL)
        means = "→".join(_mean(each, ".3f") for each in held)
        spent = sum(after["generated_tokens"]) / sum(before["generated_tokens"])
        cells = (_gain(summary, first, second), f"{means} ({more.low:+.3f} to {more.high:+.3f})", f"{spent:.2f}")
        lines.append((label, *cells, _played_by(name)))
    head = (what, "gain in cumulative reward", "held-out pass@1", "tokens generated", "experiment")
    return table(head, lines, left=(0, 4))


def balance() -> str:
    """Fixed ratios and `auto` in swarms of several kinds."""
    lines = []
    for label, name, alone, more in BALANCE:
        summary = load(name)
        figures = summary["arms"]
        gains = {arm: _gain(summary, alone, arm) for arm in ("4/4", more, "4/auto") if arm}
        spent = sum(figures["4/auto"]["generated_tokens"]) / sum(figures[alone]["generated_tokens"])
        other = f"{more}: {gains[more]}" if more else ""
        lines.append((label, gains["4/4"], other, gains["4/auto"], f"{spent:.2f}", _played_by(name)))
    head = ("swarm", "4/4", "more external", "4/auto", "tokens generated, 4/auto", "experiment")
    return table(head, lines, left=(0, 5))


def ceiling() -> str:
    """The gain of each kind of node over being alone, where peers are of unlike strength."""
    lines = []
    for label, name, role in CEILING:
        compared_arms = load(name)["comparisons"]
        gains = [
            experiments.gain(next((compared_arms[arm]["roles"][role] for arm in names if arm in compared_arms), None))
            for names in (("4/4 uniform", "4/4"), ("4/4 informative",), ("8/auto",), ("8/auto informative",))
        ]
        lines.append((label, *gains))
    return table(("node", "4/4", "4/4 informative", "8/auto", "8/auto informative"), lines, left=(0,))


def _undefended() -> dict[str, Results]:
    """The metrics of nodes without filters, one attacking key, by scenario."""
    return {each["scenario"]: each["metrics"]["undefended"] for each in load("poison")["outcomes"]}


def _by_keys(cells: Cells, metric: str) -> str:
    """The means, fewest keys first; the number of keys where it is not all of 1, 64 and 1,024."""
    if not cells:
        return ""
    ordered = sorted(cells, key=lambda cell: int(cell["keys"]))
    means = values(metric, (fmean(cell["judged"][metric]) for cell in ordered))
    return means if len(ordered) > 1 else f"{means} ({ordered[0]['keys']} keys)"


def _worst(cells: Cells, cost: str) -> str:
    """The greatest mean of a cost, with its interval."""
    return _interval(max((cell["costs"][cost] for cell in cells), key=fmean), "+.1%")


def poison() -> str:
    """The effect of each poison on nodes without filters and with them, by the number of the attacker's keys.

    The matrix of filters left out has later nodes than that of keys, so its cells count where they have as many seeds.
    """
    bare = _undefended()
    kept: dict[tuple[str, str, int], Results] = {}
    whole = (cell for cell in load("ablation")["without"] if not cell["without"])
    for cell in (*load("keys")["by_keys"], *whole):
        place = (cell["scenario"], cell["attackers"], cell["keys"])
        if place not in kept or len(cell["seeds"]) >= len(kept[place]["seeds"]):
            kept[place] = cell
    lines = []
    for name in POISONS:
        several = [cell for cell in kept.values() if cell["scenario"] == name]
        for metric in several[0]["judged"]:
            trusted, strangers = (
                _by_keys([cell for cell in several if cell["attackers"] == tier], metric)
                for tier in ("trusted", "strangers")
            )
            alone = values(metric, [fmean(bare[name][metric])]) if name in bare else ""
            costs = (_worst(several, cost) for cost in ("reward_lost", "heldout_lost"))
            lines.append((f"`{name.removeprefix('poison-')}`", COUNTED[metric], alone, trusted, strangers, *costs))
    head = ("poison", "counted", "no filters", "filters, trusted", "filters, strangers")
    return table((*head, "most reward lost", "most held-out lost"), lines, left=(0, 1))


def ablation() -> str:
    """The poison that each filter stops: the effect when it is left out, 64 keys."""
    cells = [cell for cell in load("ablation")["without"] if cell["keys"] == 64]
    whole = {cell["scenario"]: cell for cell in cells if not cell["without"]}
    lines = []
    for cell in cells:
        if cell["without"]:
            full = whole[cell["scenario"]]
            metric = list(cell["judged"])[-1]
            both = "→".join(values(metric, [fmean(each["judged"][metric])]) for each in (full, cell))
            lost = _interval(cell["costs"]["reward_lost"], "+.1%")
            names = ", ".join(f"`{name.removesuffix(' filter')}`" for name in cell["without"])
            poisoned = cell["scenario"].removeprefix("poison-")
            lines.append((f"`{poisoned}`", names, f"{COUNTED[metric]} {both}", lost))
    return table(("poison", "without", "all filters→without", "reward lost without"), lines, left=(0, 1))


def strangers() -> str:
    """Honest strangers, alone, beside sybils and in a flood."""
    lines = []
    for name in SWARMS:
        cells = sorted(
            (each for each in load("keys")["by_keys"] if each["scenario"] == name), key=lambda at: at["keys"]
        )
        [metric] = cells[0]["judged"]
        least = min((cell["judged"][metric] for cell in cells), key=fmean)
        numbers = ", ".join(f"{cell['keys']:,}" for cell in cells)
        means = values(metric, (fmean(cell["judged"][metric]) for cell in cells))
        lines.append((f"`{name}`", COUNTED[metric], numbers, means, _interval(least, ".0%")))
    head = ("scenario", "counted", "keys", "for these keys", "the least of them")
    return table(head, lines, left=(0, 1))


def poison_smollm2() -> str:
    """Two poisons against nodes with SmolLM2, one key."""
    lines = []
    for name in ("poison_smollm2", "poison_drift_smollm2"):
        for each in load(name)["outcomes"]:
            if "undefended" not in each["metrics"]:
                continue
            bare, defended = each["metrics"]["undefended"], each["metrics"]["defended"]
            metric = next(one["metric"] for one in each["verdicts"] if one["arm"] == "undefended")
            both = (values(metric, by_name[metric]) for by_name in (bare, defended))
            costs = (_interval(defended[cost], "+.1%") for cost in ("reward_lost", "heldout_lost"))
            lines.append((f"`{each['scenario']}`", COUNTED[metric], *both, *costs))
    head = ("poison", "counted", "no filters", "filters", "reward lost", "held-out lost")
    return table(head, lines, left=(0, 1))


def honest() -> str:
    """The cost of filters for honest swarms."""
    return compared(HONEST, "honest swarm, with filters against without")


def tried() -> str:
    """Each variation that was tried, against nodes as they are."""
    return compared(TRIED, "tried")


def regimes() -> str:
    """4/4 against the same nodes alone, in several swarms."""
    return compared(REGIMES, "swarm, 4/4 against 8/0 unless said")


def learnt() -> str:
    """Two nodes with SmolLM2, alone and together: held-out pass@1 before and after, and the gain in reward."""
    lines = []
    for label, name in LEARNT:
        summary = load(name)
        for arm, each in summary["arms"].items():
            by_seed = zip(each["heldout_start"], each["heldout_final"], strict=True)
            rise = _interval([after - before for before, after in by_seed], "+.3f")
            start, final = (_mean(each[when], ".3f") for when in ("heldout_start", "heldout_final"))
            gain = "" if arm == summary["reference"] else _gain(summary, summary["reference"], arm)
            lines.append((label, arm, start, final, rise, gain, _played_by(name)))
    head = ("tasks", "arm", "pass@1 before", "after", "rise", "gain in reward over 4/0", "experiment")
    return table(head, lines, left=(0, 1, 6))


def learner() -> str:
    """A round of the learner beside one of TRL's, and the generation of transformers, which trains nothing."""
    lines = []
    for label, name in MODELS:
        measured = load(name)["results"]
        for rewards in dict.fromkeys(each["rewards"] for each in measured):
            by_learner = {each["learner"]: each for each in measured if each["rewards"] == rewards}
            ours, trl, batching = (by_learner[one] for one in ("ours", "trl", "transformers"))
            whole = (ours["tokens"] / ours["seconds"]) / (trl["tokens"] / trl["seconds"])
            generated = [one["tokens"] / one["phases"]["generate"] for one in (ours, trl, batching)]
            ratios = (
                whole,
                generated[0] / generated[1],
                generated[0] / generated[2],
                ours["peak_mib"] / trl["peak_mib"],
            )
            lines.append((f"{label}, {rewards}", f"{ours['seconds']:.1f}", *(f"{ratio:.2f}" for ratio in ratios)))
    head = ("policy, rewards", "CPU-seconds a round", "tokens a CPU-second, of TRL's", "generated, of TRL's")
    return table((*head, "generated, of transformers'", "memory, of TRL's"), lines, left=(0,))


def math_verify() -> str:
    """Pairs of answers that math-verify and this project accept, by list."""
    summary = load("math_verify")
    rows = (
        (
            name,
            f"{each['equal']:,}",
            f"{each['math_verify_accepts']:,}",
            f"{each['of_these_ours']:,} ({each['of_these_ours'] / each['math_verify_accepts']:.1%})",
            f"{each['ours_accepts']:,}",
            f"{each['math_verify_accepts_wrong']} and {each['ours_accepts_wrong']} of {each['different']}",
            f"{each['ms_math_verify']:.1f} and {each['ms_ours']:.1f}",
        )
        for name, each in summary["lists"].items()
    )
    titles = ("equal pairs", "math-verify accepts", "of these ours", "ours in all", "wrong pairs: math-verify and ours")
    return table(("list", *titles, "CPU ms a pair"), rows, left=(0,))


def curriculum() -> str:
    """Shares of informative groups by the way in which difficulty is chosen, over the rounds that were measured."""
    results = load("curriculum")["results"]
    ways = ("uniform", "best weights", "one of 8 counters", "adaptive", "best level")
    rows = [
        (
            node,
            case.partition(",")[0].removeprefix("transfer "),
            *(f"{figures[way]['informative'][0]:.2f}" if way in figures else "" for way in ways),
            *("{:+.0%} ({:+.0%} to {:+.0%})".format(*figures[way]["adaptive_gain"]) for way in ways[:2]),
        )
        for case, found in results.items()
        if case.endswith(", 40 rounds")
        for node, figures in found["nodes"].items()
    ]
    head = ("node", "transfer", *ways, "adaptive against uniform", "adaptive against best weights")
    return table(head, rows, left=(0,))


def lookahead() -> str:
    """Nodes that play the best of the next counters beside nodes as they are: means, and paired differences."""
    lines = []
    for label, name, plain, chosen in LOOKAHEAD:
        summary = load(name)
        both = [summary["arms"][arm] for arm in (plain, chosen)]
        cells = [str(len(summary["seeds"]))]
        for figure in ("informative", "heldout_final", "cpu_seconds"):
            by_arm = [each[figure] for each in both]
            form = ".0f" if figure == "cpu_seconds" else ".3f"
            cells.append(" → ".join(_mean(each, form) for each in by_arm))
            if figure == "heldout_final":
                cells.append(_interval([after - before for before, after in zip(*by_arm, strict=True)], "+.3f"))
        lines.append((label, *cells, _played_by(name)))
    head = ("node", "seeds", "informative groups", "pass@1 at the end", "difference", "CPU-seconds", "experiment")
    return table(head, lines, left=(0, 6))


def summaries() -> str:
    """Every kept summary with its command and the commit that played it, by date."""
    by_date: dict[str, list[str]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        summary = load(path.stem)
        by_date.setdefault(summary["date"], []).append(f"{_played_by(path.stem)} {summary['commit']}")
    return table(
        ("date", "command, commit"), ((date, ", ".join(by_date[date])) for date in sorted(by_date)), left=(0, 1)
    )


def gossip_cost() -> str:
    """The cost of gossip for one peer of swarms of several sizes."""
    head = ("peers", "topics followed", "bodies", "rounds published", "messages/s", "kB/s", "of a core")
    rows = []
    for each in load("gossip_cost")["swarms"]:
        late, company = each["seconds_to_99"], each["seconds_to_company"]
        counts = (
            f"{each['peers']:,}",
            f"{each['heard']} of {each['shards']}",
            "fetched" if each["fetches"] else "sent",
            "all" if each["interval"] == 1 else f"1 of {each['interval']}",
            f"{each['messages_per_second']:.1f}",
        )
        received = each["bytes_per_second"] + each["offer_bytes_per_second"]
        costs = (f"{received / 1e3:,.0f}", f"{each['cpu']:.0%}")
        waits = ("never" if late is None else f"{late:.1f} s", "" if company is None else f"{company:.0f} s")
        rows.append((*counts, *costs, *waits))
    return table((*head, "99 % have it after", "99 % have company after"), rows)


def played_gossip() -> str:
    """The kB/s that each node of played swarms received."""
    kinds = ("messages", "control", "bodies", "pulls")
    rows = [
        (
            f"{each['peers']:,}",
            f"{each['text_bytes']:,} bytes",
            f"{each['bytes_per_second'] / 1e3:.1f}",
            *(f"{each['by_kind'][kind] / 1e3:.1f}" for kind in kinds),
            f"{each['copies']:.1f}",
            f"{each['seconds_to_99']:.2f} s",
            f"{each['came']:.1%}",
        )
        for each in load("played_gossip")["swarms"]
    ]
    head = ("peers", "a completion", "kB/s", *kinds, "copies", "99 % have it after", "bodies within 15 s")
    return table(head, rows)


def soak() -> str:
    """The memory and open files of the two nodes that no fault was done to, and their growth."""
    head = ("node", "process", "memory, MiB", "growth, MiB/h", "open files", "growth, files/h")
    rows = []
    for each in load("soak")["growth"]:
        grown = [
            "{:+.1f} ({:+.1f} to {:+.1f})".format(*(round(slope[end], 1) + 0.0 for end in ("slope", "low", "high")))
            for slope in (each["mebibytes_per_hour"], each["files_per_hour"])
        ]
        memory = f"{each['mebibytes']:.0f}"
        rows.append((each["node"], each["process"], memory, grown[0], str(each["files"]), grown[1]))
    return table(head, rows, left=(0, 1))


def faults() -> str:
    """The ends of the lives of a swarm, each with one fault."""
    found = load("faults")["faults"]
    head = ("fault", "lives", "went on", "stopped with an error that says why", "killed")
    rows = [
        (fault, str(sum(ended.values())), *(str(ended.get(way, 0)) for way in ("went on", "stopped", "killed")))
        for fault, ended in found.items()
    ]
    return table(head, rows, left=(0,))


TABLES: Mapping[str, Callable[[], str]] = {
    "threats": lambda: scenarios.markdown(load("matrix")),
    "sharing": sharing,
    "horizon": partial(arms, "sapo_horizon", 0, 3, 4),
    "paper": partial(arms, "sapo_table", 0, 1, 2, 3, 5, 6),
    "regimes": regimes,
    "learnt": learnt,
    "balance": balance,
    "ceiling": ceiling,
    "poison": poison,
    "ablation": ablation,
    "strangers": strangers,
    "poison-smollm2": poison_smollm2,
    "honest": honest,
    "tried": tried,
    "learner": learner,
    "math-verify": math_verify,
    "curriculum": curriculum,
    "lookahead": lookahead,
    "summaries": summaries,
    "gossip_cost": gossip_cost,
    "played_gossip": played_gossip,
    "soak": soak,
    "faults": faults,
}


def text_of(name: str, page: Path) -> str:
    """The table of that name for a page. Tables name files as seen from the root of the repository."""
    return TABLES[name]().replace("](", f"]({'../' * (len(page.relative_to(ROOT).parts) - 1)}")


def _filled(page: Path, found: re.Match[str]) -> str:
    return found[1] + found[2] + text_of(found[1], page)


def main(arguments: list[str]) -> int:
    """Write the tables, or tell by the exit status whether they are as they should be."""
    if arguments[:1] == ["keep"]:
        keep(Path(arguments[1]), arguments[2:])
    if arguments == ["draw"]:
        draw_keys(load("keys")["by_keys"], load("ablation")["without"], PICTURES / "keys.svg")
    stale = []
    for page in PAGES:
        text = page.read_text("utf-8")
        if (written := TABLE.sub(partial(_filled, page), text)) != text:
            stale.append(page)
            if arguments != ["--check"]:
                page.write_text(written, "utf-8")
    sys.stdout.writelines(f"{page.relative_to(ROOT)}\n" for page in stale)
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
