"""The bootstrap peers of a swarm: those of the operator, and those in a file beside the manifest.

The file beside `swarm.toml` is `swarm.bootstrap`. It has one multiaddress in a line; `#` begins a comment. Nobody signs
it and the network id does not depend on it: it is a hint, and each peer proves its id.
"""

from pathlib import Path

from sapo_node.app.config import Config
from sapo_node.net.addresses import require_bootstrap
from sapo_protocol import LocalError, shipped_manifests
from sapo_protocol.files import NoSuchFile, read_bounded

_SUFFIX = ".bootstrap"
_MAX_BYTES = 65_536
_MAX_PEERS = 64


def bootstrap_of(config: Config) -> tuple[str, ...]:
    """Return the addresses of all bootstrap peers, the operator's first. Raises LocalError for a malformed file."""
    hints = [] if config.swarm in shipped_manifests() else _hints(Path(config.swarm).with_suffix(_SUFFIX))
    return tuple(dict.fromkeys((*config.bootstrap, *hints)))


def _hints(path: Path) -> list[str]:
    try:
        lines = read_bounded(path, _MAX_BYTES, "list of bootstrap peers").decode("utf-8-sig", "replace").splitlines()
    except NoSuchFile:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            require_bootstrap(text)
        except LocalError as error:
            raise LocalError(f"{path}, line {number}: {error}") from error
        found.append(text)
    if len(found) > _MAX_PEERS:
        raise LocalError(f"{path} names {len(found)} bootstrap peers; leave at most {_MAX_PEERS}")
    return found
