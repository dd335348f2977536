"""Every command that a page prints is one that the command line takes."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

import walked
from sapo_adversary.cli.main import cli as adversary
from sapo_node.cli.main import cli as node
from sapo_node.groups.advantage import advantages
from sapo_node.observability.overview import KINDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = {"sapo-node": node, "sapo-adversary": adversary}
_COMMAND = re.compile(r"^ {4}(?:\.venv/bin/)?((?:sapo-node|sapo-adversary) [^\n]*)", re.MULTILINE)


def printed():
    """(page, command line) of each, without what stands behind it for people."""
    for page in PAGES:
        for line in _COMMAND.findall(page.read_text()):
            yield page.name, re.split(r"\s+#|\s{2,}(?=[a-z])| > | >> |\s*[\\&]$", line)[0].strip()


@pytest.mark.parametrize(("page", "line"), sorted(set(printed())))
def test_a_printed_command_is_one_that_is_taken(page, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(line)
    group = PROGRAMS[program]
    command, context = group, click.Context(group)
    while isinstance(command, click.Group):
        name, command, arguments = command.resolve_command(context, arguments)
        context = command.make_context(name, arguments, parent=context)  # raises for an option that is not taken
        arguments = [*context._protected_args, *context.args]


@pytest.mark.parametrize("page", walked.PAGES)
def test_the_walk_types_each_command_of_its_pages_or_says_why_not(page):
    walk = ast.walk(ast.parse((ROOT / "tests/walk/test_walk.py").read_text()))
    lines = {each.value for each in walk if isinstance(each, ast.Constant)}
    assert walked.printed(page).keys() <= lines | walked.NOT_TYPED.keys()


def test_the_advantages_on_the_page_are_those_of_the_code():
    page = (ROOT / "docs/learn/how-it-learns.md").read_text()
    rows = re.findall(r"^\| (\d) \| ([+-][\d.]+|0) \| ([+-][\d.]+|0) \|", page, re.MULTILINE)
    assert len(rows) == 6
    for right, good, bad in rows:
        found = advantages([1.0] * int(right) + [0.0] * (8 - int(right)))
        assert {float(good), float(bad)} >= {round(each, 2) for each in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_file_and_a_heading_that_are_there(page):
    for link in re.findall(r"\]\((?!http)([^)\s]+)\)", page.read_text()):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert re.sub(r"-1$", "", anchor) in slugs, link  # -1: the second heading of that name


def test_the_map_names_files_and_functions_that_are_there():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([\w/]+\.py)` \| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    assert rows
    for file, functions in rows:
        path = ROOT / file if file.startswith("protocol/") else ROOT / "node/sapo_node" / file
        assert {*re.findall(r"\w+", functions)} <= {*re.findall(r"def (\w+)", path.read_text())}, file


def test_the_glossary_has_the_three_words_for_what_was_not_trained_on_as_the_page_says_them():
    glossary = (ROOT / "docs/reference/glossary.md").read_text()
    assert all(f"| {word} | {meaning} |" in glossary for word, meaning in KINDS.items())


def test_there_are_commands_on_the_pages():
    assert len(list(printed())) > 40
