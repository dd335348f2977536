"""Who must answer what, and when."""

from collections import Counter
from dataclasses import replace

import pytest

from sapo_protocol import ASSIGNED_SEEDS, LocalError, assign, epoch_at, in_window, peer_id, public_key_of

KEY = bytes(range(32))


def test_an_assignment_is_the_same_for_everybody(manifest):
    assert assign(manifest, KEY, 5, 6, 7) == assign(manifest, KEY, 5, 6, 7)


def test_issuer_epoch_counter_k_and_swarm_each_change_it(manifest):
    other = replace(manifest, name="another")
    seeds = {
        assign(manifest, KEY, 5, 6, 7).seed,
        assign(manifest, bytes(32), 5, 6, 7).seed,
        assign(manifest, KEY, 6, 6, 7).seed,
        assign(manifest, KEY, 5, 7, 7).seed,
        assign(manifest, KEY, 5, 6, 8).seed,
        assign(other, KEY, 5, 6, 7).seed,
    }
    assert len(seeds) == 6


def test_datasets_are_drawn_by_weight(manifest):
    weighted = replace(manifest, tasks=(replace(manifest.tasks[0], weight=3), manifest.tasks[1]))
    drawn = Counter(assign(weighted, KEY, 0, counter, 0).spec.dataset for counter in range(2_000))
    assert 0.70 < drawn[weighted.tasks[0].dataset] / 2_000 < 0.80


def test_assigned_seeds_stay_below_those_of_held_out_questions(manifest):
    assert all(assign(manifest, KEY, 0, counter, 0).seed < ASSIGNED_SEEDS for counter in range(500))


def test_epochs_are_counted_from_the_genesis(manifest):
    assert [epoch_at(manifest, now) for now in (-1, 0, 599.9, 600)] == [-1, 0, 0, 1]


WINDOW = {
    "the running epoch": (5, 3_100, True),
    "the epoch before": (4, 3_100, True),
    "two epochs before": (3, 3_100, False),
    "the next epoch, half a minute ahead": (6, 3_570, True),
    "the next epoch, more than that ahead": (6, 3_569, False),
    "the epoch after the next": (7, 3_599, False),
    "an epoch at the end of time": (2**64 - 1, 3_100, False),
}


@pytest.mark.parametrize(("epoch", "now", "taken"), WINDOW.values(), ids=WINDOW.keys())
def test_the_window_takes(manifest, epoch, now, taken):
    assert in_window(manifest, epoch, now) is taken


def test_a_peer_id_is_that_of_libp2p():
    from libp2p.crypto.ed25519 import create_new_key_pair
    from libp2p.peer.id import ID

    pair = create_new_key_pair(KEY)
    assert peer_id(pair.public_key.to_bytes()) == str(ID.from_pubkey(pair.public_key))


def test_the_key_can_be_read_back_from_a_peer_id():
    assert public_key_of(peer_id(KEY)) == KEY


@pytest.mark.parametrize("text", ["", "0", "12D3KooW", "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"])
def test_other_text_is_no_peer_id(text):
    with pytest.raises(LocalError, match="peer id"):
        public_key_of(text)


@pytest.mark.parametrize("end", [" ", "\r", "\n", "\t"])
def test_a_peer_id_with_a_blank_behind_it_is_none_because_no_peer_is_called_so(end):
    with pytest.raises(LocalError, match="blank"):
        public_key_of(peer_id(KEY) + end)
