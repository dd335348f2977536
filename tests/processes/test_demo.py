"""`sapo-node demo`, as its users run it: three honest nodes, a polluter, and an honest summary."""

import json

import pytest

from processes import sapo_node


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_polluter_of_the_demo_gets_nothing_and_the_honest_nodes_learn_and_exchange():
    done = sapo_node("demo", "--rounds", 25, "--prompts", 8, "--json", timeout=580)
    assert done.returncode == 0, done.stderr
    assert "while this runs: http://127.0.0.1:" in done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert len(summary["honest"]) == 3
    for node in summary["honest"]:
        assert node["heldout_after"] > node["heldout_before"]
    assert sum(node["external_groups_trained"] for node in summary["honest"]) > 0
    (polluter,) = summary["polluters"]
    assert (polluter["trained_share"], polluter["state"]) == (0.0, "banned")
    assert summary["accepted"] > 0
    assert summary["refused"]["false claim"] > 0
