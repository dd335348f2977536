"""No item that a peer can choose takes a node seconds to rebuild. Peers choose keys and counters, so also items."""

from hypothesis import example, given
from hypothesis import strategies as st

from sapo_node.tasks.divisors import common_divisors
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import load_manifest

CONFIG = next(task.config for task in load_manifest("paper-nine").tasks if task.dataset == "basic_arithmetic")
COSTLY = (296709092, 1034245157, 1676349353)
"""Seeds of the costliest of 315,025 items. The library needed 7 s, five minutes and 20 s for their divisors."""

NUMBERS = st.integers(-(10**8), 10**8) | st.builds(lambda one, other: one * other, *[st.integers(1, 10**4)] * 2)


async def test_items_with_large_products_are_scored_with_the_others_of_their_rollout(sandbox: Sandbox) -> None:
    batch = [ScoreRequest("basic_arithmetic", CONFIG, seed, ("<answer>0</answer>",)) for seed in (1, *COSTLY, 2)]
    results = await sandbox.score(batch)
    assert [result.levels for result in results if result] == [(0,)] * len(batch)
    assert results[1] is not None
    expression = "( ( ( -8290 * 6761 ) - 6139 ) * ( -9499 * 7143 ) ) / 9209191801581"
    assert results[1].prompt == f"Evaluate: {expression}. Each quotient is floored."


@given(NUMBERS, NUMBERS)
@example(0, 0)
@example(0, 12)
@example(2 * 997 * 1009, 0)
@example(1009**2, 0)
@example(1009 * 7919, 1009 * 104729)
def test_divisors_have_the_order_of_the_library_so_that_its_items_stay_the_same(a: int, b: int) -> None:
    from reasoning_gym.arithmetic import basic_arithmetic as library

    assert common_divisors(a, b) == library.find_common_divisors(a, b)


def test_the_product_of_two_large_primes_has_four_divisors() -> None:
    one, other = 1_000_000_007, 998_244_353
    assert common_divisors(one * other, 0) == [1, one * other, other, one]
