"""The bootstrap peers of a node: those of its operator, or the hint beside the manifest.

Nobody signs the hint and the network id does not depend on it. Each dialled peer proves its id.
"""

from sapo_node.net.addresses import require_bootstrap
from sapo_protocol import LocalError, Manifest


def bootstrap_of(named: tuple[str, ...], manifest: Manifest) -> tuple[str, ...]:
    """Return the addresses that the operator `named`, or those of the manifest if the operator named none.

    Raises LocalError if the manifest has an address that cannot be dialled.
    """
    if named:
        return named
    for text in manifest.bootstrap:
        try:
            require_bootstrap(text)
        except LocalError as error:
            raise LocalError(f"manifest {manifest.name!r}, bootstrap: {error}") from error
    return manifest.bootstrap
