"""Token buckets against the law they stand for: in no span of time more than the burst and what the rate adds.

The model keeps every message ever asked about and counts; times and rates are eighths, so that sums are exact.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from sapo_node.quota import MAX_SENDERS, SenderQuota

SENDERS = ("one", "two")


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
        self.quota = SenderQuota(rate=rate, burst=burst)
        self.now = 1_000.0
        self.remembered: dict[str, Past] = {}
        """In the order of their last message."""
        self.passers_by = 0

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

    @rule(count=st.sampled_from([1, 2, 3, 40, MAX_SENDERS - 3, MAX_SENDERS - 1]))
    def others_come_by(self, count):
        """Each is new and lets itself be heard once: nobody pays for another."""
        for number in range(self.passers_by, self.passers_by + count):
            assert self.ask(f"passer-by {number}")
        self.passers_by += count

    def ask(self, sender: str) -> bool:
        past = self.remembered.pop(sender, None) or Past(self.now)
        self.remembered[sender] = past
        if len(self.remembered) > MAX_SENDERS:
            del self.remembered[next(iter(self.remembered))]
        expected = past.ask(self.now, self.rate, self.burst)
        assert self.quota.take(sender, self.now) is expected
        assert len(self.quota._buckets) <= MAX_SENDERS
        return expected


def test_no_sender_gets_more_than_its_burst_and_its_rate_and_none_pays_for_another():
    run_state_machine_as_test(QuotaMachine, settings=settings())


def test_a_clock_that_goes_back_gives_nothing():
    quota = SenderQuota(rate=1.0, burst=1.0)
    assert quota.take("sender", 100.0)
    assert not quota.take("sender", 50.0)


def test_a_clock_that_is_set_right_again_gives_no_more_than_it_went_forward():
    quota = SenderQuota(rate=1.0, burst=5.0)
    assert all(quota.take("sender", 100.0) for _ in range(5))
    quota.take("sender", 50.0)
    assert [quota.take("sender", 52.0) for _ in range(3)] == [True, True, False]
