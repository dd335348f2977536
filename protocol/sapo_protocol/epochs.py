"""Time on the wire: epochs counted from the genesis, and the window in which an envelope is taken."""

from .limits import CLOCK_SKEW_SECONDS
from .manifest import Manifest


def epoch_at(manifest: Manifest, now: float) -> int:
    """The epoch at Unix time `now` (seconds): floor((now - genesis) / epoch_seconds), negative before the genesis."""
    return int((now - manifest.genesis) // manifest.epoch_seconds)


def epoch_start(manifest: Manifest, epoch: int) -> float:
    """Unix time at which `epoch` begins."""
    return float(manifest.genesis + epoch * manifest.epoch_seconds)


def in_window(manifest: Manifest, epoch: int, now: float) -> bool:
    """Whether `epoch` is taken at `now`: the running epoch, the one before, and the next one just ahead of it."""
    current = epoch_at(manifest, now)
    if epoch == current + 1:
        return epoch_start(manifest, epoch) - now <= CLOCK_SKEW_SECONDS
    return current - 1 <= epoch <= current
