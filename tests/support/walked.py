"""The commands that the walked pages print, and those that the walk does not type."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/start/first-node.md",
    "docs/operate/load.md",
    "docs/start/your-answers.md",
    "docs/start/your-trainer.md",
    "docs/operate/faults.md",
)
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_LINE = re.compile(r"^ {4}(\S[^\n]*)", re.MULTILINE)
_ROW = re.compile(r"^\|[^\n]*", re.MULTILINE)
_IN_ROW = re.compile(r"(?<=`)sapo-node [^`]+")
_REMARK = re.compile(r"\s+#|\s{2,}(?=[a-z])")

NOT_TYPED = {
    "make test": "`make nightly` has run it",
    "make faults": "`make nightly` runs it",
    "sapo-node peers trust": "typed with a peer",
    "sapo-node model fetch": "a table of extras names it; typed with a model",
    "sapo-node contribute --endpoint http://127.0.0.1:8000/v1 --model qwen3-4b "
    """--extra-body '{"chat_template_kwargs": {"enable_thinking": false}}'""": "needs a model that thinks",
    "python -m pip install '.[train]' trl==1.16.0": "typed from another folder",
    "sapo-node start --no-train --feed --local 4 --external 4 --max-tokens 256 --model my-model": "typed with --state",
    "python examples/trl_grpo.py Qwen/Qwen2.5-0.5B-Instruct PATH/feed.json": "needs a model of the hub",
    'curl --header "Authorization: Bearer $TOKEN" --header "Sapo-Trainer: $NAME" '
    '"http://127.0.0.1:8700/v1/work?wait=30"': "tests/node/feed asks so",
    "python -m pytest -m bench -s --timeout 1800 tests/benchmarks/test_bench_load.py": "`make bench` runs it",
    "python -m pytest -s -m bench tests/benchmarks/test_bench_flood.py": "`make bench` runs it",
}
"""Printed commands, and why the walk leaves them out."""


def printed(page):
    """The command lines of a page, without remarks, each on one line and once."""
    text = _FENCED.sub("", (ROOT / page).read_text().replace("\\\n", " "))
    lines = [_REMARK.split(line)[0] for line in _LINE.findall(text)]
    lines += [command for row in _ROW.findall(text) for command in _IN_ROW.findall(row)]
    return dict.fromkeys(" ".join(line.split()).removeprefix(".venv/bin/") for line in lines)


def typed(page, line, values=()):
    """A command line that `page` prints, with `values` in place of the words that a person replaces."""
    assert line in printed(page), f"{page} does not print {line!r}"
    for word, value in dict(values).items():
        assert word in line, f"{line!r} has no {word!r}"
        line = line.replace(word, str(value))
    return line


def code(page, number=0):
    """The text of a fenced block of Python on a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[number]
