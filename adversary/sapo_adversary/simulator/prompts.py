"""The worked examples of a simulated node, and the held-out prompts of its evaluations."""

from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.simulation import NodeSpec, Simulation
from sapo_node.groups.prompt import NO_EXAMPLES, Examples
from sapo_node.training.evaluation import heldout_requests
from sapo_node.verification.catalogue import example_requests, examples_from
from sapo_protocol import Manifest


def examples_of(spec: NodeSpec, manifest: Manifest, scorer: SharedScorer) -> Examples:
    """The worked examples that a node's model reads."""
    if not spec.examples:
        return NO_EXAMPLES
    requests = example_requests(manifest, spec.examples)
    return examples_from(manifest, [scorer.result(each) for each in requests], spec.examples)


def heldout_prompts(simulation: Simulation, manifest: Manifest, scorer: SharedScorer) -> frozenset[str]:
    """The held-out prompts. No node trains on them."""
    requests = heldout_requests(manifest, simulation.heldout_prompts)
    return frozenset(scorer.result(each).prompt for each in requests)
