"""Epochs, counted from the genesis (TIME-1), and the window of epochs that a receiver accepts (TIME-2)."""

from .limits import CLOCK_SKEW_SECONDS
from .manifest import Manifest


def epoch_at(manifest: Manifest, now: float) -> int:
    """The epoch at Unix time `now` (seconds): floor((now - genesis) / epoch_seconds), negative before the genesis."""
    return int((now - manifest.genesis) // manifest.epoch_seconds)


def epoch_start(manifest: Manifest, epoch: int) -> float:
    """Unix time at which `epoch` begins."""
    return float(manifest.genesis + epoch * manifest.epoch_seconds)


def in_window(manifest: Manifest, epoch: int, now: float) -> bool:
    """Return whether a receiver accepts `epoch` at `now`: the current epoch, or the one before.

    It accepts the next epoch from CLOCK_SKEW_SECONDS before that epoch begins.
    """
    current = epoch_at(manifest, now)
    if epoch == current + 1:
        return epoch_start(manifest, epoch) - now <= CLOCK_SKEW_SECONDS
    return current - 1 <= epoch <= current
