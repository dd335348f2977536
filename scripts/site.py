"""Gathers the pages of the documentation site in build/site/pages: docs/, what stands beside it, and the reference.

python scripts/site.py && zensical build --strict

The reference is written from the code each time, so that it is never old and need not be committed. A link to a page
of the repository leads to its place on the site. A link to anything else becomes plain text: the site holds no code.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import reference

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "site" / "pages"
"""What the builder reads; `zensical.toml` names the same folder."""
ICON = ROOT / "node" / "sapo_node" / "observability" / "dashboard" / "page" / "icon.svg"
"""The icon of a node's page is that of the site, too."""
STYLE = """.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
.md-typeset td:first-child:nth-last-child(-n+3) code,
.md-typeset td:first-child:nth-last-child(3) + td code { word-break: normal; overflow-wrap: break-word; }
"""
"""A line of code that is longer than its column is wrapped, so that none of it is hidden. A name stays whole where it
stands before the last column of a table of two or three.
"""
BESIDE = {
    "README.md": "index.md",
    "SECURITY.md": "trust/security.md",
    "CONTRIBUTING.md": "contribute/code.md",
    "CHANGELOG.md": "contribute/changelog.md",
    "spec/README.md": "spec/index.md",
    "spec/conformance/README.md": "spec/conformance.md",
}
"""Pages that stand elsewhere in the repository, and their place on the site."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def places() -> dict[Path, str]:
    """Each page and picture of the site, by its path in the repository, with its place on the site."""
    docs = ROOT / "docs"
    found = {
        path: path.relative_to(docs).as_posix() for path in docs.rglob("*") if path.suffix in (".md", ".svg", ".png")
    }
    found |= {path: path.relative_to(ROOT).as_posix() for path in (ROOT / "spec").glob("*.md")}
    found |= {path: path.relative_to(ROOT).as_posix() for path in (ROOT / "spec" / "decisions").glob("*.md")}
    return found | {ROOT / path: place for path, place in BESIDE.items()}


def on_the_site(page: Path, known: dict[Path, str]) -> str:
    """The text of a page with links that hold on the site."""
    here = Path(known[page]).parent

    def link(match: re.Match[str]) -> str:
        picture, text, file, anchor = match[1], match[2], match[3], match[4] or ""
        target = (page.parent / file).resolve()
        if target not in known:
            return text
        if text.endswith(".md"):
            text = title_of(target)
        return f"{picture}[{text}]({os.path.relpath(known[target], here)}{anchor})"

    return _LINK.sub(link, page.read_text("utf-8"))


def title_of(page: Path) -> str:
    """The first heading of a page."""
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def main() -> int:
    """Write all pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    known = places()
    written = [
        (place, on_the_site(path, known).encode() if path.suffix == ".md" else path.read_bytes())
        for path, place in known.items()
    ]
    written += [("icon.svg", ICON.read_bytes()), ("site.css", STYLE.encode())]
    for place, content in [*written, *((f"reference/{name}", text.encode()) for name, text in reference.pages())]:
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
