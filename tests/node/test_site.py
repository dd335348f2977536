"""The documentation site builds without a warning, offline, and its navigation is complete."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("zensical", reason="the documentation site is for those who change it")

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "site" / "pages"


@pytest.fixture(scope="module")
def gathered():
    """The pages of the site."""
    subprocess.run([sys.executable, ROOT / "scripts" / "site.py"], check=True)
    return {path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md")}


def places(nav):
    """Every page that the navigation names, through its sections."""
    for entry in nav:
        for target in entry.values():
            yield from [target] if isinstance(target, str) else places(target)


def test_every_page_is_in_the_navigation_and_every_entry_leads_to_a_page(gathered):
    named = list(places(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert len(named) == len(set(named))
    assert set(named) == {page for page in gathered if not page.startswith("spec/decisions/")}


def test_the_site_builds_without_a_warning(gathered):
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "No issues found" in built.stdout + built.stderr


def test_a_built_page_asks_the_network_for_nothing(gathered):
    page = (ROOT / "build" / "site" / "html" / "index.html").read_text()
    assert 'src="http' not in page
    assert '<link rel="stylesheet" href="http' not in page


def test_the_site_has_an_icon_a_switch_for_dark_and_wraps_long_lines_of_code(gathered):
    page = (ROOT / "build" / "site" / "html" / "reference" / "sapo-node.html").read_text()
    assert '<link rel="icon" href="../icon.svg">' in page
    assert "Switch to dark" in page
    assert 'href="../site.css"' in page
    assert (PAGES / "icon.svg").is_file()
