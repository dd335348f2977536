"""The page that teaches to write an attack shows one that stands in the package, word for word."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.cli.main import cli

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/extend/writing-an-attack.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("language", "file"),
    [
        ("python", "adversary/sapo_adversary/attacks/hollow.py"),
        ("toml", "adversary/sapo_adversary/data/scenarios/hollow.toml"),
    ],
)
def test_the_page_shows_the_files_as_they_are(language, file):
    [shown] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert shown == (ROOT / file).read_text("utf-8")
    assert file in PAGE


def test_the_attack_of_the_page_takes_no_more_than_forty_lines():
    assert len((ROOT / "adversary/sapo_adversary/attacks/hollow.py").read_text("utf-8").splitlines()) <= 40
    assert "hollow" in ATTACKS


def test_the_options_of_the_page_are_those_of_the_commands():
    help_text = "".join(CliRunner().invoke(cli, [command, "--help"]).output for command in ("run", "matrix"))
    assert set(re.findall(r"`(--[a-z]+)", PAGE)) <= set(re.findall(r"--[a-z]+", help_text))


def test_the_figures_of_the_page_are_those_of_the_first_seed():
    outcomes = json.loads((ROOT / "docs/results/matrix.json").read_text("utf-8"))["outcomes"]
    [hollow] = [each for each in outcomes if each["scenario"] == "hollow"]
    shown = re.findall(r"✓ (\w+): (\w+) (\S+), at", PAGE)
    assert len(shown) == 3
    for arm, metric, value in shown:
        assert hollow["metrics"][arm][metric][0] == float(value)
