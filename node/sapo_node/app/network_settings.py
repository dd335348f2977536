"""Derives the settings of the network from the configuration, the manifest and the key."""

from sapo_node.app.bootstrap import bootstrap_of
from sapo_node.app.config import Config
from sapo_node.net.settings import NetworkSettings
from sapo_node.storage.keys import Identity
from sapo_protocol import Manifest


def network_settings(
    config: Config,
    manifest: Manifest,
    identity: Identity,
    *,
    anchors: tuple[str, ...] = (),
    known: tuple[str, ...] = (),
) -> NetworkSettings:
    """Return the settings of the network. `anchors` and `known` are addresses of peers from earlier sessions.

    Raises LocalError for a malformed file of bootstrap peers.
    """
    return NetworkSettings(
        seed=identity.seed,
        network_id=manifest.network_id.hex(),
        listen=config.listen,
        announce=config.announce,
        bootstrap=bootstrap_of(config),
        anchors=anchors,
        known=known,
        discover=config.mdns,
    )
