"""Finds the command that installs an extra of this package into the environment of this process.

The package may come from a clone, a wheel or a repository: the command names that place again, because an index may not
have the package.
"""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

_NAME = "sapo-node"


def command_for(extra: str) -> str:
    """Return the shell command that installs an extra."""
    python = shlex.quote(sys.executable)
    install = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{install} {shlex.quote(_requirement(extra, _origin()))}"


def _origin() -> dict[str, Any]:
    """Return what the installer noted of the place (PEP 610); empty for a package from an index."""
    try:
        return dict(json.loads(distribution(_NAME).read_text("direct_url.json") or "{}"))
    except (PackageNotFoundError, ValueError):
        return {}


def _requirement(extra: str, origin: dict[str, Any]) -> str:
    url = str(origin.get("url", ""))
    if not url:
        return f"{_NAME}[{extra}]"
    if url.startswith("file:") and "vcs_info" not in origin:
        return f"{unquote(urlsplit(url).path)}[{extra}]"
    vcs = origin.get("vcs_info")
    return f"{_NAME}[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else f"{_NAME}[{extra}] @ {url}"
