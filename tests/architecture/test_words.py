"""Pages, docstrings, comments and messages use the words of the field, and no retired word."""

import ast
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {
    "protocol/sapo_protocol": ["."],
    "node/sapo_node": ["."],
    "adversary/sapo_adversary": [
        *("attacks", "data", "experiments", "files", "load", "scenarios", "simulator"),
    ],
}
CLEAN = ["*.md", "docs/**/*.md", "spec/*.md", "spec/conformance/*.md"]
CLEAN += [f"{package}/{room}/**/*.py" for package, rooms in ROOMS.items() for room in rooms]
"""Files that are held to it. A room is added when its last retired word is gone."""
EXCEPT = {"CHANGELOG.md"}  # history

SAY = {
    r"(?<!surro)gates?": "filter",
    r"jail\w*": "sandbox",
    r"exam(s|ine[ds]?)?": "evaluation, evaluate",
    r"earshot": "shard subscriptions",
    r"hearsay": "peer exchange",
    r"spoken against": "masked, or: disagree with the local gradient",
    r"(keep|keeps|kept) out( of)?": "masked (tokens), rejected (completion)",
    r"whom it knows": "peers",
    r"yardstick\w*": "reference set",
    r"reckon\w*": "estimate",
    r"mend(s|ed|ing)?": "fix",
    r"liars?|cheat\w*": "malicious peer, attacker",
    r"a lie|lied": "a false claim, claimed falsely",
    r"shelf": "message store",
    r"courts?": "equivocation handler",
    r"convict(s|ed|ing|ions?)?": "ban",
    r"testif\w+": "broadcast evidence",
    r"campaigns?": "scenario",
    r"chapters?": "section",
    r"flat groups?": "zero-advantage group",
    r"(right|wrong) (answer|completion)s?": "correct or incorrect completion",
    r"(?-i:Of others')": "name the noun first: completions of other nodes",
    r"befalls?|heeded": "happens to, used as a source",
    r"(?-i:(?<=[.;] )(Who|Whoever) [^.?\n]*\.)": "name the actor first: a peer that, a node that",
}
"""Retired word (regular expression) -> what to say."""
NO_PROSE = re.compile(
    r"<!-- table:.*?<!-- end -->|```.*?```|`[^`\n]*`|\]\([^)]*\)|^ {4}[^\n]*$|(FROM|INTO|TABLE IF NOT EXISTS) \w+",
    re.DOTALL | re.MULTILINE,
)
"""Tables that are made from stored results, code, links, and names of tables in SQL, which states of 0.1 hold."""


def prose(path):
    """The sentences of a page; of a module its comments and all texts that hold a blank."""
    if path.suffix == ".md":
        yield NO_PROSE.sub(" ", path.read_text("utf-8"))
        return
    with tokenize.open(path) as file:
        yield from (token.string for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield NO_PROSE.sub(" ", node.value.replace("\n    ", "\n"))


FILES = sorted({path for pattern in CLEAN for path in ROOT.glob(pattern)} - {ROOT / name for name in EXCEPT})


def retired(path):
    """Each retired word in a file, with what to say."""
    for text in prose(path):
        for word, say in SAY.items():
            for found in re.finditer(rf"(?<!\w)({word})(?!\w)", text, re.IGNORECASE):
                yield found[0], say


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_or_module_uses_no_retired_word(path):
    assert not list(retired(path))


@pytest.mark.parametrize("line", ["# The jail is up.", '"""The jail is up."""', 'help = "The jail is up."'])
def test_comments_docstrings_and_messages_are_read(tmp_path, line):
    path = tmp_path / "module.py"
    path.write_text(f"{line}\njail = 'jail'\n")
    assert list(retired(path)) == [("jail", "sandbox")]


def test_code_on_a_page_is_not_read(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("The `jail` of\n\n    jail = 1\n\nis a [sandbox](jail.md). It is fixed. Who reads it mends it.\n")
    assert [found for found, _ in retired(path)] == ["mends", "Who reads it mends it."]
