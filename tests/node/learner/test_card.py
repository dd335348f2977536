"""The card of an exported model: the hub accepts it, and it tells what the node measured."""

from dataclasses import replace

import pytest
from huggingface_hub import ModelCard

from sapo_node.groups.stats import Interval
from sapo_node.learner.card import CardFacts, Evaluation, Weights, model_card

FACTS = CardFacts(
    base="somebody/tiny",
    swarm="starter",
    network_id="ab" * 32,
    evaluations=(
        Evaluation(0, Interval(0.1, 0.05, 0.2), {"sums": Interval(0.1, 0.05, 0.2)}),
        Evaluation(50, Interval(0.3, 0.2, 0.4), {"sums": Interval(0.3, 0.2, 0.4)}),
        Evaluation(100, Interval(0.9, 0.8, 0.95), {"sums": Interval(0.9, 0.8, 0.95)}),
    ),
    local_tokens=600,
    external_tokens=400,
    peers=3,
    filtered={"equation filter": 7},
    taken_back=1,
    health_alarms=2,
)
WEIGHTS = Weights(step=60, parameters=1_000, dtype="float32", lora=16, adapter_only=False, best=False)


def front_matter(facts=FACTS, weights=WEIGHTS):
    return ModelCard(model_card(facts, weights)).data.to_dict()


def test_the_hub_reads_the_front_matter():
    assert front_matter() == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["sapo", "sapo-node", "grpo", "reinforcement-learning", "lora"],
        "base_model": "somebody/tiny",
        "base_model_relation": "finetune",
    }


def test_adapters_are_an_adapter_of_their_base():
    found = front_matter(weights=replace(WEIGHTS, adapter_only=True))
    assert (found["library_name"], found["base_model_relation"]) == ("peft", "adapter")


def test_the_card_loads_adapters_with_the_base_that_they_name():
    card = model_card(replace(FACTS, base="mine"), replace(WEIGHTS, adapter_only=True))
    assert 'model = AutoPeftModelForCausalLM.from_pretrained(".")' in card
    assert "AutoModelForCausalLM" not in card.replace("AutoPeftModelForCausalLM", "")


def test_a_base_that_the_hub_does_not_know_is_no_link():
    assert "base_model" not in front_matter(replace(FACTS, base="mine"))


def test_a_known_licence_is_named():
    assert front_matter(replace(FACTS, license="apache-2.0"))["license"] == "apache-2.0"


def test_the_card_shows_the_first_evaluation_and_the_last_that_these_weights_had():
    card = model_card(FACTS, WEIGHTS)
    assert "| task | round 0 | round 50 |" in card
    assert "| **mean of tasks** | 0.100 (0.050 to 0.200) | 0.300 (0.200 to 0.400) |" in card
    assert "0.900" not in card


def test_the_card_says_what_came_from_peers_and_what_the_filters_did():
    card = model_card(FACTS, WEIGHTS)
    assert "Share of the trained tokens that came from peers: 40.0%, of 1,000 tokens and 3 peers." in card
    assert "Alarms of the filters that took steps back: 1." in card
    assert "Alarms about a policy that decays: 2." in card
    assert "Groups of peers rejected as a whole, equation filter: 7." in card


def test_a_node_that_never_evaluated_says_so():
    assert "The node did not evaluate these weights." in model_card(replace(FACTS, evaluations=()), WEIGHTS)


@pytest.mark.parametrize("name", ["x\n---\nlicense: mit", "a|b`c<script>", "\x1b[2J\u202e"])
def test_an_odd_name_changes_neither_front_matter_nor_table(name):
    card = model_card(replace(FACTS, base=name, swarm=name), WEIGHTS)
    assert "license" not in ModelCard(card).data.to_dict()
    [row] = [line for line in card.splitlines() if line.startswith("| base model |")]
    assert row.count("|") == 3
    assert row.isprintable()
    assert "<script>" not in card
