"""The worked examples of a simulated node."""

from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.simulation import NodeSpec
from sapo_node.groups.prompt import NO_EXAMPLES, Examples
from sapo_node.verification.examples import example_requests, examples_from
from sapo_protocol import Manifest


def examples_of(spec: NodeSpec, manifest: Manifest, scorer: SharedScorer) -> Examples:
    """The worked examples that a node's model reads."""
    if not spec.examples:
        return NO_EXAMPLES
    requests = example_requests(manifest, spec.examples)
    return examples_from(manifest, [scorer.result(each) for each in requests], spec.examples)
