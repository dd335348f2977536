"""Compares every pinned distribution with the advisories of OSV (https://osv.dev), which hold those of PyPI and GitHub.

python scripts/audit.py                  asks api.osv.dev, one request for all pins
python scripts/audit.py all.zip          reads a snapshot: osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip

The exit status is 0 if no pin has a known advisory, 1 if one has, and 3 if the advisories cannot be read: then nothing
was compared.
"""

import json
import os
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pins import pins

from sapo_protocol.printable import excerpt, line_of

SERVICE = os.environ.get("OSV_URL", "https://api.osv.dev/v1/querybatch")
SECONDS = 60
FOUND, UNREADABLE = 1, 3
MAX_BYTES = 2**26
"""Bytes of one advisory of a snapshot, and of the answer of the service, at most."""


def asked(pinned: Mapping[str, str]) -> Iterator[str]:
    """A line per advisory that the service knows for a pin. Raises any Exception for an answer of another shape."""
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in pinned.items()]
    request = urllib.request.Request(  # noqa: S310 - https, unless the caller sets another
        SERVICE, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - as above
        results = json.loads(bounded(answer, "the answer"))["results"]
    for (name, version), result in zip(pinned.items(), results, strict=True):
        if result.get("next_page_token") and not result.get("vulns"):
            raise ValueError(f"it has the advisories of {name} on another page")
        for advisory in result.get("vulns", ()):
            yield f"{name} {version}: {advisory['id']}, https://osv.dev/vulnerability/{advisory['id']}"


def in_snapshot(path: str, pinned: Mapping[str, str]) -> Iterator[str]:
    """A line per advisory of the snapshot for a pin. Raises any Exception if it is none."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".json")]
        if not names:
            raise ValueError("it holds no advisories")
        for name in names:
            with archive.open(name) as member:
                advisory = json.loads(bounded(member, name))
            if advisory.get("withdrawn"):
                continue
            for affected in advisory.get("affected", ()):
                package = canonicalize_name(affected.get("package", {}).get("name", ""))
                if package in pinned and is_affected(pinned[package], affected):
                    yield f"{package} {pinned[package]}: {advisory['id']}, {advisory.get('summary', '')}"


def bounded(stream: IO[bytes], what: str) -> bytes:
    """Return what a stream holds. Raises ValueError if it holds more than MAX_BYTES."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{what} has more than {MAX_BYTES} bytes")
    return data


def is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    """Whether a version is in the list or in a range of versions of an advisory."""
    if version in affected.get("versions", ()):
        return True
    ranges = (each for each in affected.get("ranges", ()) if each.get("type") == "ECOSYSTEM")
    return any(is_within(Version(version), each.get("events", ())) for each in ranges)


def is_within(version: Version, events: Any) -> bool:
    """Whether a version lies between the `introduced` and the `fixed` or `last_affected` of a range."""
    within = False
    for event in events:
        [(kind, text)] = event.items()
        try:
            bound = Version(text)
        except InvalidVersion:
            continue
        if kind == "introduced" and version >= bound:
            within = True
        elif (kind == "fixed" and version >= bound) or (kind == "last_affected" and version > bound):
            within = False
    return within


def main(arguments: list[str]) -> int:
    """Print a line per advisory, and how many pins were compared."""
    pinned = {str(name): version for name, (version, _) in pins("constraints.txt").items()}
    try:
        found = list(in_snapshot(arguments[0], pinned) if arguments else asked(pinned))
    except Exception as error:  # noqa: BLE001 - zip, zlib, HTTP and JSON share no class of errors, and an uncaught one exits with FOUND
        sys.stderr.write(
            f"nothing was compared: the advisories of OSV are not reachable or not readable ({line_of(error)}); "
            "give a snapshot with ADVISORIES=all.zip\n"
        )
        return UNREADABLE
    sys.stdout.writelines(f"{excerpt(line)}\n" for line in sorted(set(found)))
    sys.stdout.write(f"{len(pinned)} pins compared, {len(set(found))} advisories\n")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
