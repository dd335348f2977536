"""Keeps results of runs as small summaries in docs/results, and writes the tables of the pages from them.

python scripts/results.py                      write every table, from `<!-- table: NAME -->` to `<!-- end -->`
python scripts/results.py --check              only compare
python scripts/results.py keep results NAME... summarise results/NAME.json first, and keep the pictures of NAME
python scripts/results.py draw                 draw docs/pictures/keys.svg from the summaries keys-before and keys
"""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from sapo_adversary.experiments import tables as experiments
from sapo_adversary.experiments.summary import SMOOTH
from sapo_adversary.files.records import to_json
from sapo_adversary.scenarios import table as scenarios
from sapo_adversary.scenarios.keys_plot import draw_keys
from sapo_adversary.scenarios.scenario import SHARE
from sapo_adversary.scenarios.table import table
from sapo_node.groups.messages import FILTERS

ROOT = Path(__file__).parents[1]
RESULTS, PICTURES = ROOT / "docs" / "results", ROOT / "docs" / "pictures"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLE = re.compile(r"(?<=<!-- table: )([\w-]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
Results = Mapping[str, Any]

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
HONEST = (
    ("eight nodes of one policy", "filters", "4/4", "4/4, all filters"),
    ("specialists: three nodes know one task each, three know none", "filters_novelty", "4/4", "4/4, all filters"),
    ("three architectures, three tokenizers", "filters_heterogeneous", "4/auto", "4/auto, all filters"),
)


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
    if "attacks" in results:
        return {**results, "attacks": {name: _searched(each) for name, each in results["attacks"].items()}}
    if "runs" in results:
        curves = {
            run["seed"]: [[at["round"], round(at["pass_at_1"], 4)] for at in run["records"]] for run in results["runs"]
        }
        return {**results, "runs": curves}
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


def _searched(found: Results) -> dict[str, Any]:
    """Instead of all tries their number; the options of a poison only once, with all filters."""
    kept: dict[str, Any] = {"tries": len(found["tries"])}
    for which in ("plain", "best"):
        by_filter = {
            name: {filter_name: _without(trial, {"options"}) for filter_name, trial in found[which][name].items()}
            for name in ("alone", "left out")
        }
        kept[which] = {**found[which], **by_filter}
    return kept


def _outcome(outcome: Results) -> dict[str, Any]:
    names = HARM | {each["metric"] for each in outcome["verdicts"]}
    metrics = {
        arm: {name: values for name, values in by_name.items() if name in names}
        for arm, by_name in outcome["metrics"].items()
    }
    return {**_without(outcome, {"curves", "title", "layer"}), "metrics": metrics}


def keep(folder: Path, names: Collection[str]) -> None:
    """Write the summaries of results in a folder, each with the SHA-256 of its results, and copy their pictures."""
    for name in names:
        data = (folder / f"{name}.json").read_bytes()
        summary = {**summary_of(json.loads(data)), "results_sha256": hashlib.sha256(data).hexdigest()}
        (RESULTS / f"{name}.json").write_text(to_json(summary), "utf-8")
        for picture in (folder / f"{name}.svg", folder / f"{name}_tasks.svg"):
            if picture.exists():
                shutil.copy(picture, PICTURES)


def load(name: str) -> dict[str, Any]:
    """A summary by its name."""
    summary: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return summary


def outcomes(ending: str | tuple[str, ...], *, other: bool = False) -> list[dict[str, Any]]:
    """Poison at a quarter of all peers, of scenarios whose names end so, or do not."""
    played = [each for each in load("poison")["outcomes"] if each["share"] == SHARE]
    return [each for each in played if each["scenario"].endswith(ending) != other]


def sharing() -> str:
    """What sharing gains in four swarms."""
    rows = []
    for label, name, alone, shared in SHARING:
        summary = load(name)
        spent = [sum(summary["arms"][arm]["generated_tokens"]) for arm in (alone, "4/auto")]
        gains = (experiments.gain(summary["comparisons"][arm]) for arm in (shared, "4/auto"))
        rows.append((label, *gains, f"{spent[1] / spent[0]:.2f}"))
    return table(
        ("swarm", "4 local, 4 external (4/4)", "4 local, external `auto`", "tokens generated"), rows, left=(0,)
    )


def honest() -> str:
    """What filters cost honest swarms."""
    rows = []
    for label, name, without, filtered in HONEST:
        summary = load(name)
        before, after = (summary["arms"][arm]["cumulative"] for arm in (without, filtered))
        more = ", ".join(f"{late / early - 1:.0%}" for early, late in zip(before, after, strict=True))
        rows.append((label, *(experiments.gain(summary["comparisons"][arm]) for arm in (without, filtered)), more))
    head = (
        "honest swarm",
        "gain over nodes alone, without filters",
        "with filters",
        "more reward with filters, by seed",
    )
    return table(head, rows, left=(0,))


def searched() -> str:
    """How near to taking hold a search brings poison: nats, and the share that filters keep out."""
    head = ("poison", "tries", "before", "plain, no filters", "plain", "best found", "what was found")
    rows = []
    for name, found in load("poison_search")["attacks"].items():
        plain, best = found["plain"], found["best"]["filters"]
        first = (
            f"`{name}`",
            str(found["tries"]),
            f"{plain['filters']['distance']:.1f}",
            f"{plain['no filters']['left']:.1f}",
        )
        told = ", ".join(f"{key} {value}" for key, value in best["options"].items())
        rows.append((*first, _left(plain["filters"]), f"{_left(best)}, of {best['distance']:.1f}", told))
    return table(head, rows, left=(0, 6))


def searched_by_filter() -> str:
    """What that poison has left before each filter alone, and before all but that one: nats."""
    rows = []
    for name, found in load("poison_search")["attacks"].items():
        for which, of in (("plain", found["plain"]), ("best found", found["best"])):
            by_filter = [
                f"{of['alone'][filter_name]['left']:.1f}; {of['left out'][filter_name]['left']:.1f}"
                for filter_name in FILTERS
            ]
            rows.append(
                (f"`{name}`, {which}", f"{of['no filters']['left']:.1f}", *by_filter, f"{of['filters']['left']:.1f}")
            )
    return table(("poison", "no filters", *(f"`{filter_name}`" for filter_name in FILTERS), "all"), rows, left=(0,))


def _left(trial: Results) -> str:
    return f"{trial['left']:.1f} ({trial['kept_out']:.0%} kept out)"


def gossip_cost() -> str:
    """What gossip costs one peer of swarms of several sizes."""
    head = ("peers", "topics followed", "messages/s", "of a core", "of the line")
    rows = []
    for each in load("gossip_cost")["swarms"]:
        late, company = each["seconds_to_99"], each["seconds_to_company"]
        counts = (f"{each['peers']:,}", f"{each['heard']} of {each['shards']}", f"{each['messages_per_second']:.1f}")
        costs = (f"{each['cpu']:.0%}", f"{each['upload']:.0%}")
        waits = ("never" if late is None else f"{late:.1f} s", "" if company is None else f"{company:.0f} s")
        rows.append((*counts, *costs, *waits))
    return table((*head, "99 % have it after", "99 % have company after"), rows)


def soak() -> str:
    """What the processes of the two nodes that no fault was done to hold, and how they grow."""
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
    """How the lives of a swarm ended, each with one fault."""
    found = load("faults")["faults"]
    head = ("fault", "lives", "went on", "stopped with an error that says why", "killed")
    rows = [
        (fault, str(sum(ended.values())), *(str(ended.get(way, 0)) for way in ("went on", "stopped", "killed")))
        for fault, ended in found.items()
    ]
    return table(head, rows, left=(0,))


def learner(results: str) -> str:
    """A round of the learner beside one of TRL's, and the generation of transformers, which trains nothing."""
    head = ("rewards", "learner", "CPU-seconds a round", "generate", "forward and backward", "tokens a CPU-second")
    rows = []
    for each in load(results)["results"]:
        generate, train = (each["phases"][name] for name in ("generate", "forward_backward"))
        whole, generated = each["tokens"] / each["seconds"], each["tokens"] / generate
        cells = (f"{each['seconds']:.3f}", f"{generate:.3f}", f"{train:.3f}", _rate(whole))
        shown = cells if train else ("", cells[1], "", "")
        rows.append((each["rewards"], each["learner"], *shown, _rate(generated), str(each["peak_mib"])))
    return table((*head, "tokens a CPU-second of generation", "peak memory, MiB"), rows, left=(0, 1))


def _rate(tokens: float) -> str:
    return f"{tokens:,.0f}" if tokens >= 100 else f"{tokens:.1f}"


TABLES: Mapping[str, Callable[[], str]] = {
    "threats": lambda: scenarios.markdown(load("matrix")),
    "poison": lambda: scenarios.poison(outcomes(("-adaptive", "-searched", "-slip", "-long", "-mixed"), other=True)),
    "poison-adaptive": lambda: scenarios.poison(outcomes(("-adaptive", "-searched", "-slip", "-long"))),
    "poison-mixed": lambda: scenarios.poison(outcomes("-mixed")),
    "poison-smollm2": lambda: scenarios.poison(
        each
        for name in ("poison_smollm2", "poison_drift_smollm2")
        for each in load(name)["outcomes"]
        if "undefended" in each["metrics"]
    ),
    "poison-by-share": lambda: scenarios.poison_by_share(
        each for each in load("poison")["outcomes"] if each["scenario"] == "poison-text"
    ),
    "keys-before": lambda: scenarios.by_keys(load("keys-before")["by_keys"]),
    "keys": lambda: scenarios.by_keys(load("keys")["by_keys"]),
    "ablation": lambda: scenarios.ablation(load("ablation")["without"]),
    "sharing": sharing,
    "honest": honest,
    "searched": searched,
    "searched-by-filter": searched_by_filter,
    "gossip_cost": gossip_cost,
    "soak": soak,
    "faults": faults,
    "learner": lambda: learner("bench_learner"),
    "learner-smollm2": lambda: learner("bench_learner_smollm2"),
}


def text_of(name: str, page: Path) -> str:
    """The table of that name for a page. Tables name files as seen from the root of the repository."""
    made = TABLES[name]() if name in TABLES else experiments.markdown(load(name)) + "\n"
    return made.replace("](", f"]({'../' * (len(page.relative_to(ROOT).parts) - 1)}")


def _filled(page: Path, found: re.Match[str]) -> str:
    return found[1] + found[2] + text_of(found[1], page)


def main(arguments: list[str]) -> int:
    """Write the tables, or tell by the exit status whether they are as they should be."""
    if arguments[:1] == ["keep"]:
        keep(Path(arguments[1]), arguments[2:])
    if arguments == ["draw"]:
        draw_keys(load("keys-before")["by_keys"], load("keys")["by_keys"], PICTURES / "keys.svg")
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
