"""The split of a round is found from what groups are worth, within its bounds, whoever offers whatever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.app.config import Config, load_config
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.mix import MAX_EXTERNAL, STEP, UNKNOWN, Auto, Costs, FixedRatio, Split, ratio_of
from sapo_node.sampling.weights import PassRates
from sapo_protocol import LocalError


def own(right):
    levels = Levels(tuple(int(number < right) for number in range(8)))
    return LocalGroup("products", "", b"", (), levels, local_advantages(levels))


def others(right):
    completions = tuple(Sampled("x", "stop") for _ in range(8))
    levels = Levels(tuple(int(number < right) for number in range(8)))
    return VerifiedGroup("peer", 0, 0, 0, "products", "", completions, levels)


LOCAL = 4


class Swarm:
    """A node that is right so often of eight, among others that are right so often of eight."""

    def __init__(self):
        self.pass_rates = PassRates()
        self.ratio = Auto(LOCAL, self.pass_rates)
        self.taken = []

    def play(self, rounds, *, right, theirs, offered=2 * MAX_EXTERNAL, own_seconds=0.0, seconds=0.0):
        """Each own group takes `own_seconds`, and each external one `seconds`."""
        for _ in range(rounds):
            split = self.ratio.split()
            self.taken.append(split.external)
            local = [own(right)] * split.local
            costs = Costs(own_seconds * split.local, seconds * split.external, split.external)
            self.ratio.observe(local, [others(theirs)] * offered, supply=offered, costs=costs)
            self.pass_rates.observe(local)
        return self.ratio.split().external


def test_a_node_that_joins_measures_itself_first():
    assert Auto(LOCAL, PassRates()).split() == Split(LOCAL, 0)


def test_it_looks_at_others_even_while_it_takes_nothing():
    assert Auto(LOCAL, PassRates()).probe > 0
    assert FixedRatio(8, 0).probe == 0


def test_what_a_node_generates_is_its_operators_choice():
    swarm = Swarm()
    swarm.play(30, right=1, theirs=6)
    assert swarm.ratio.split().local == LOCAL


def test_a_weak_node_among_strong_ones_takes_as_much_as_it_may():
    assert Swarm().play(30, right=0, theirs=6) == MAX_EXTERNAL


def test_a_node_takes_in_as_soon_as_it_has_measured_itself():
    assert Swarm().play(1, right=0, theirs=6) == MAX_EXTERNAL


def test_peers_of_like_strength_take_all_they_can_of_each_other():
    assert Swarm().play(30, right=4, theirs=4) == MAX_EXTERNAL


def test_a_strong_node_takes_in_less_of_weak_ones():
    assert Swarm().play(30, right=6, theirs=1) <= MAX_EXTERNAL / 4


def test_a_swarm_that_offers_nothing_is_asked_for_next_to_nothing():
    swarm = Swarm()
    swarm.play(20, right=1, theirs=6)
    assert swarm.play(40, right=1, theirs=6, offered=0) <= 1


def test_no_more_is_asked_for_than_there_is_to_draw_from():
    assert 2 <= Swarm().play(40, right=1, theirs=6, offered=2) <= 3


def test_what_is_taken_settles():
    swarm = Swarm()
    swarm.play(20, right=6, theirs=2)
    assert len(set(swarm.taken[10:])) == 1


def test_an_alarm_halves_what_is_taken_and_it_grows_back():
    swarm = Swarm()
    before = swarm.play(30, right=3, theirs=3)
    swarm.ratio.alarm()
    assert swarm.ratio.split().external == before / 2
    assert swarm.play(3, right=3, theirs=3) <= before / 2 + 2
    assert swarm.play(30, right=3, theirs=3) >= before - STEP


def test_external_groups_that_become_three_times_dearer_than_own_ones_are_taken_less():
    swarm = Swarm()
    assert swarm.play(30, right=4, theirs=4, own_seconds=1.0, seconds=1.0) == MAX_EXTERNAL
    after = swarm.play(60, right=4, theirs=4, own_seconds=1.0, seconds=3.0)
    assert abs(after - MAX_EXTERNAL / 3) < STEP


def test_external_groups_that_become_cheap_again_are_taken_again():
    swarm = Swarm()
    swarm.play(60, right=4, theirs=4, own_seconds=1.0, seconds=1000.0)
    assert swarm.taken[-1] == 1
    assert swarm.play(200, right=4, theirs=4, own_seconds=1.0, seconds=0.5) == MAX_EXTERNAL


def test_a_long_time_without_external_groups_does_not_make_them_dear():
    swarm = Swarm()
    before = swarm.play(30, right=4, theirs=2, own_seconds=1.0, seconds=1.0)
    for _ in range(300):  # the learner looks for external groups in each batch, and finds none
        swarm.ratio.observe([own(4)] * LOCAL, [], supply=0, costs=Costs(local=4.0, external=1e-5, groups=0))
    assert abs(swarm.play(30, right=4, theirs=2, own_seconds=1.0, seconds=1.0) - before) <= STEP


def test_slow_groups_of_little_worth_are_still_measured_and_taken_again_when_they_are_fast():
    swarm = Swarm()
    swarm.play(60, right=4, theirs=1, own_seconds=1.0, seconds=1000.0)
    assert swarm.taken[-1] == 1
    assert swarm.play(200, right=4, theirs=1, own_seconds=1.0, seconds=0.5) > 2


def test_cheap_external_groups_are_taken_by_what_they_are_worth():
    dear, cheap = (Swarm().play(30, right=6, theirs=2, own_seconds=own, seconds=1.0) for own in (1.0, 10.0))
    assert dear == cheap


def test_what_was_not_measured_changes_nothing():
    known, unknown = (Swarm().play(30, right=6, theirs=2, own_seconds=5.0, seconds=each) for each in (1.0, 0.0))
    assert known == unknown


def test_the_costs_are_known_after_a_restart():
    swarm, again = Swarm(), Swarm()
    swarm.play(60, right=4, theirs=4, own_seconds=1.0, seconds=3.0)
    again.ratio.load_state_dict(swarm.ratio.state_dict())
    again.ratio.observe([own(4)] * LOCAL, [others(4)], supply=2 * MAX_EXTERNAL, costs=UNKNOWN)
    assert again.ratio.split() == swarm.ratio.split()


def test_the_state_of_a_version_without_costs_is_read():
    swarm = Swarm()
    swarm.play(30, right=4, theirs=4)
    state = {key: value for key, value in swarm.ratio.state_dict().items() if "seconds" not in key}
    again = Swarm()
    again.ratio.load_state_dict(state)
    assert again.ratio.split() == swarm.ratio.split()


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 20)), max_size=40))
def test_no_history_breaks_the_bounds(history):
    swarm = Swarm()
    for right, theirs, offered in history:
        assert 0 <= swarm.play(1, right=right, theirs=theirs, offered=offered) <= MAX_EXTERNAL


def test_the_configuration_takes_a_number_or_auto(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text('external = "auto"\n')
    config = load_config(path)
    assert (config.external, config.groups) == ("auto", 8)
    assert isinstance(ratio_of(config.local, config.external, PassRates()), Auto)
    assert ratio_of(3, 2, PassRates()).split() == Split(3, 2)


def test_any_other_word_is_refused(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text('external = "lots"\n')
    with pytest.raises(LocalError, match="external"):
        load_config(path)


def test_the_default_is_a_fixed_split():
    assert Config().groups == 8
