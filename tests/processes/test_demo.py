"""`sapo-node demo`, as its users run it: three honest nodes, a band of malicious keys, and a summary."""

import json

import pytest

from processes import sapo_node
from tiny_models import write_model


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_honest_strangers_learn_from_each_other_and_train_on_nothing_of_64_malicious_keys():
    done = sapo_node("demo", "--rounds", 25, "--prompts", 8, "--json", timeout=580)
    assert done.returncode == 0, done.stderr
    assert "while the demo runs: http://127.0.0.1:" in done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert len(summary["honest"]) == 3
    for node in summary["honest"]:
        assert node["heldout_after"] > node["heldout_before"]
        assert node["external_share"] > 0
        assert node["first_external"]["round"] > 0
    malicious = summary["malicious"]
    assert (malicious["keys"], malicious["trained_tokens"]) == (64, 0)
    assert malicious["states"]["banned"] > 0
    assert "healthy" not in malicious["states"]
    assert summary["accepted"] > 0
    assert summary["refused"]["false claim"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_plays_with_a_model_of_the_user(tmp_path):
    model = write_model(tmp_path / "tiny", "llama")
    done = sapo_node("demo", "--model", model, "--rounds", 2, "--prompts", 1, "--json", timeout=580)
    assert done.returncode == 0, done.stderr
    assert "evaluating the untrained model" in done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert [node["heldout_after"] for node in summary["honest"]] == [0, 0, 0], "it knows nothing, and learns nothing"
    assert summary["malicious"]["trained_tokens"] == 0
