"""Token buckets against the law they stand for: in no span of time more than the burst and what the rate adds.

The model keeps every message ever asked about and counts; times and rates are eighths, so that sums are exact.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from sapo_node.processes import link_budget
from sapo_node.processes.link_budget import LinkBudget

SENDERS = ("one", "two", "three", "four", "five")
REMEMBERED = 3


@dataclass
class Past:
    """What one sender asked, each with the time that had passed for it, and whether it was let through."""

    last: float
    passed: float = 0.0
    asked: list[tuple[float, bool]] = field(default_factory=list)

    def ask(self, now: float, rate: float, burst: float) -> bool:
        """Let through, if every span that ends now keeps to the burst and what the rate adds over the span."""
        self.passed += max(0.0, now - self.last)
        self.last = now
        allowed, through = True, 0
        for then, was_let_through in reversed(self.asked):
            through += was_let_through
            allowed = allowed and through + 1 <= burst + rate * (self.passed - then)
        self.asked.append((self.passed, allowed))
        return allowed


class QuotaMachine(RuleBasedStateMachine):
    @initialize(rate=st.sampled_from([0.125, 1.0, 2.5, 200.0]), burst=st.sampled_from([1.0, 2.0, 5.0, 7.5]))
    def begin(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.quota = LinkBudget(rate=rate, burst=burst)
        self.now = 1_000.0
        self.remembered: dict[str, Past] = {}
        """In the order of their last message."""

    @rule(
        eighths=st.integers(0, 80) | st.integers(-40, 40),
        sender=st.sampled_from(SENDERS),
        count=st.integers(1, 12),
    )
    def a_sender_sends(self, eighths, sender, count):
        """Some time later, or with the clock set back."""
        self.now += eighths / 8
        for _ in range(count):
            self.ask(sender)

    def ask(self, sender: str) -> None:
        past = self.remembered.pop(sender, None) or Past(self.now)
        self.remembered[sender] = past
        if len(self.remembered) > REMEMBERED:
            del self.remembered[next(iter(self.remembered))]
        assert self.quota.take(sender, self.now) is past.ask(self.now, self.rate, self.burst)
        assert set(self.quota._links) == set(self.remembered)


def test_no_sender_gets_more_than_its_burst_and_its_rate_and_none_pays_for_another(monkeypatch):
    """With a bound on senders small enough to be met."""
    monkeypatch.setattr(link_budget, "MAX_LINKS", REMEMBERED)
    run_state_machine_as_test(QuotaMachine, settings=settings())


def test_however_many_come_by_a_bounded_number_is_remembered():
    bounded = LinkBudget(rate=1.0, burst=1.0)
    assert all(bounded.take(str(number), 0.0) for number in range(link_budget.MAX_LINKS + 5))
    assert len(bounded._links) == link_budget.MAX_LINKS


def test_a_clock_that_goes_back_gives_nothing():
    sender_quota = LinkBudget(rate=1.0, burst=1.0)
    assert sender_quota.take("sender", 100.0)
    assert not sender_quota.take("sender", 50.0)


def test_a_clock_that_is_set_right_again_gives_no_more_than_it_went_forward():
    sender_quota = LinkBudget(rate=1.0, burst=5.0)
    assert all(sender_quota.take("sender", 100.0) for _ in range(5))
    sender_quota.take("sender", 50.0)
    assert [sender_quota.take("sender", 52.0) for _ in range(3)] == [True, True, False]


def test_all_links_together_use_no_more_than_the_budget_for_all():
    shared = LinkBudget(rate=1.0, burst=10.0, for_all=(2.0, 16.0))
    assert shared.take("one", 0.0, cost=10.0)
    assert not shared.take("two", 0.0, cost=7.0)
    assert shared.take("two", 0.0, cost=6.0)
    assert shared.left("three", 1.0) == 2.0


def test_a_link_has_its_assured_part_when_the_others_have_used_up_the_budget_for_all():
    shared = LinkBudget(rate=1.0, burst=10.0, for_all=(2.0, 8.0), assured=(1.0, 2.0))
    assert shared.take("one", 0.0, cost=10.0)
    assert [shared.left(link, 0.0) for link in ("one", "two")] == [0.0, 2.0]
    assert shared.take("two", 0.0, cost=2.0)
    assert not shared.take("two", 0.0)


def test_what_is_given_back_comes_back_to_all_links():
    shared = LinkBudget(rate=1.0, burst=10.0, for_all=(2.0, 8.0), assured=(1.0, 2.0))
    assert shared.take("one", 0.0, cost=10.0)
    shared.give_back("one", 0.0, 10.0)
    assert [shared.left(link, 0.0) for link in ("one", "two")] == [8.0, 10.0]


def test_what_a_link_uses_beyond_its_budget_is_told_and_not_owed():
    budget = LinkBudget(rate=1.0, burst=5.0)
    assert budget.take_rest("link", 0.0, 8.0) == 3.0
    assert budget.left("link", 2.0) == 2.0
