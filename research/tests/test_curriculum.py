"""The model of curricula repeats what it was fitted to, and its nodes choose as they are to."""

from dataclasses import replace

import numpy as np
import pytest

from research.curriculum import LADDER, PROMPTS, RUN, adaptive, calibrated, fit, geometric, oracle, play, skipping

ESTIMATES = np.array([[[0.9, 0.52, 0.1, 0.0, 0.0]]])


@pytest.fixture(scope="module")
def model():
    return calibrated(fit())


def test_the_probe_s_informative_shares_come_out(model):
    rungs = [rung for each in LADDER.values() for rung in each if rung[0] > 0]
    expected = sum(float(model.informative(np.array(model.logit(rate)))) for rate, _ in rungs)
    assert expected == pytest.approx(sum(share for _, share in rungs), abs=0.1 * len(rungs) / PROMPTS**0.5)


@pytest.mark.parametrize(("nodes", "aim"), [(1, "alone"), (2, "with a peer")])
def test_the_run_comes_out(model, nodes, aim):
    final = play(model, [RUN["start"]] * nodes, geometric(1), seeds=200).final
    assert final.mean() == pytest.approx(RUN[aim], abs=0.02)


def test_an_adaptive_node_takes_the_level_nearest_to_one_half_and_at_times_another():
    rng = np.random.default_rng(1)
    levels = np.concatenate([adaptive(rng, ESTIMATES, ESTIMATES).ravel() for _ in range(500)])
    assert np.mean(levels == 1) == pytest.approx(0.9 + 0.1 / 5, abs=0.02)


def test_a_node_that_looks_at_more_counters_has_more_groups_of_its_level():
    rng = np.random.default_rng(1)
    share = {m: np.mean([skipping(m, rng, ESTIMATES, ESTIMATES) == 1 for _ in range(500)]) for m in (1, 8)}
    assert share[1] == pytest.approx(0.2, abs=0.03)
    assert share[8] > 2 * share[1]


def test_without_growth_nothing_is_learnt(model):
    still = replace(model, growth=0.0, growth_by_peer=0.0)
    assert play(still, [0.2], oracle, seeds=2).final == pytest.approx(0.2)
