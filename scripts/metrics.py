"""Writes the table of docs/operate/metrics.md from the code; `--check` only compares.

python scripts/metrics.py
"""

import re
import sys
from pathlib import Path

from sapo_node.observability.dashboard.prometheus import table

PAGE = Path(__file__).parents[1] / "docs" / "operate" / "metrics.md"


def main(arguments: list[str]) -> int:
    """Write the table, or tell by the exit status whether it is as it should be."""
    page = PAGE.read_text("utf-8")
    written = re.sub(r"^\| name \|.*?\n(?!\|)", lambda _: table(), page, count=1, flags=re.MULTILINE | re.DOTALL)
    if arguments == ["--check"]:
        return 0 if written == page else 1
    PAGE.write_text(written, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
