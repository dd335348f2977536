"""The scripts in `examples/` show what they say, played small."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from processes import ENVIRONMENT, PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_ten_minutes_shows_that_sharing_pays_that_an_attack_harms_and_that_the_defences_hold(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "ten_minutes.py", "--quick"],
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    arms = {line.split()[0]: [float(each) for each in re.findall(r"[\d.]+", line)] for line in done.stdout.splitlines()}
    reward = {name: figures[0] for name, figures in arms.items()}
    false = {name: figures[2] for name, figures in arms.items()}
    assert list(arms) == ["alone", "together", "undefended", "defended"]
    assert reward["together"] > 2 * reward["alone"]
    assert reward["undefended"] < 0.5 * reward["defended"]
    assert reward["defended"] > 0.9 * reward["together"]
    assert false["undefended"] > 0 == false["together"] == false["defended"]
    assert "malicious keys" in (tmp_path / "ten_minutes.svg").read_text()
