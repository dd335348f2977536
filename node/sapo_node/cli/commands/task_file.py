"""Make a task of a file: `task file`."""

import re
from pathlib import Path
from typing import Any

import click

from sapo_node.app.config import Config
from sapo_node.cli.commands.options import PATH, SectionedCommand, as_json, option, settings, stderr
from sapo_node.cli.terminal import say, say_json
from sapo_node.storage.row_files import Checked, check, place_of, store
from sapo_node.tasks import DATASETS, SCORER_VERSION
from sapo_node.tasks.interop import DATASETS as INTEROP
from sapo_node.tasks.rows import split
from sapo_protocol import AnswerKind, LocalError
from sapo_protocol.limits import MAX_DATASET_BYTES, MAX_ORIGIN_BYTES
from sapo_protocol.printable import printable
from sapo_protocol.toml import toml_value

_NAME = re.compile(rf"[a-z0-9_-]{{1,{MAX_DATASET_BYTES}}}", re.ASCII)
_MOST_BY_A_CONSTANT = 0.15
"""Share of the rows above which a notice tells that one answer is correct too often."""


@click.command("file", cls=SectionedCommand)
@click.argument("data", type=PATH)
@option(
    "--scorer",
    type=click.Choice([str(kind) for kind in AnswerKind]),
    required=True,
    help="How an answer is compared with the reference.",
)
@option("--name", help="The name of the task.  [default: that of the file]")
@option("--origin", default="", metavar="TEXT", help="Where others get the file: an address, or how they make it.")
@settings("state")
@as_json
def file_(config: Config, data: Path, *, scorer: str, name: str | None, origin: str, json_output: bool) -> None:
    """Check the file DATA, keep a copy of its rows, and print the lines for a manifest.

    A line of DATA is a JSON object with the texts `prompt` and `answer`; a question with choices has `choices`, too, a
    list of texts. Other keys are left out. A node needs this copy to join a swarm whose manifest names it. The manifest
    has the SHA-256 of the copy, so every node can make the copy from the same rows.

    Rows with the same prompt count as one. About one row of 16 is held out: no round assigns it.

    \b
    sapo-node task file problems.jsonl --scorer number --origin https://example.org/problems.jsonl
    """  # noqa: D301 - click reads the backspace
    name = _checked_name(name if name is not None else _name_of(data))
    if len(origin.encode()) > MAX_ORIGIN_BYTES:
        raise LocalError(f"--origin has more than {MAX_ORIGIN_BYTES} bytes")
    answers, found = AnswerKind(scorer), Checked()
    digest = store(check(data, answers, found), config.task_files)
    source = {"file": digest, "rows": found.rows, "answers": scorer, **({"origin": origin} if origin else {})}
    notices = _notices(found)
    if json_output:
        say_json({"task": name, "source": source, "copy": str(place_of(config.task_files, digest)), **_facts(found)})
        return
    say(_toml(name, source))
    for line in (_summary(found), *notices, f"the copy is {place_of(config.task_files, digest)}"):
        stderr.print(line, highlight=False, soft_wrap=True)


def _name_of(data: Path) -> str:
    return re.sub(r"[^a-z0-9_-]", "_", data.name.partition(".")[0].lower())[:MAX_DATASET_BYTES]


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise LocalError(f"--name {name!r}: give 1 to {MAX_DATASET_BYTES} of a-z, 0-9, _ and -")
    if name in DATASETS.keys() | INTEROP:
        raise LocalError(f"--name {name}: this is a dataset of the catalogue; give another name")
    return name


def _toml(name: str, source: dict[str, Any]) -> str:
    lines = [
        "[[tasks]]",
        f"dataset = {toml_value(name)}",
        "config = {}",
        "weight = 1",
        f"scorer = {SCORER_VERSION}",
        "",
        "[tasks.source]",
        *(f"{key} = {toml_value(value)}" for key, value in source.items()),
    ]
    return "\n".join(lines)


def _facts(found: Checked) -> dict[str, Any]:
    parts, (answer, share) = split(found.marks), found.constant
    return {
        "duplicates": found.duplicates,
        "contradictions": found.contradictions,
        "assigned": len(parts.assigned),
        "held_out": len(parts.held_out),
        "examples": len(parts.examples),
        "constant": {"answer": answer, "share": share},
        "longest_prompt": found.longest_prompt,
        "longest_answer": found.longest_answer,
    }


def _summary(found: Checked) -> str:
    facts = _facts(found)
    answer, share = found.constant
    return (
        f"{found.rows:,} rows: {facts['assigned']:,} are assigned, {facts['held_out']:,} held out, "
        f"{facts['examples']:,} for worked examples; the longest prompt has {found.longest_prompt:,} characters, the "
        f"longest answer {found.longest_answer:,}; the best constant answer, {printable(answer)[:40]}, is correct in "
        f"{share:.1%}"
    )


def _notices(found: Checked) -> list[str]:
    notices = []
    if found.duplicates:
        notices.append(
            f"{found.duplicates:,} lines were left out, because an earlier line has the same prompt; "
            f"{found.contradictions:,} of them have another answer"
        )
    if found.constant[1] > _MOST_BY_A_CONSTANT:
        notices.append(
            f"one answer is correct in more than {_MOST_BY_A_CONSTANT:.0%} of the rows: models will learn it"
        )
    return notices
