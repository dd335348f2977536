"""Where a round lacks informative groups, correct completions of earlier rounds are trained on once more."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sapo_node.groups.advantage import advantages, local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup
from sapo_node.training.round import KEPT, Replay


def group(*levels, prompt="What?"):
    completions = tuple(Sampled(f"{prompt} {number}", "stop", (number,), (-0.5,)) for number in range(len(levels)))
    return LocalGroup("products", prompt, bytes(32), completions, Levels(levels), advantages(levels))


NOTHING = group(0, 0, 0, 0)


def prompts(groups):
    return [each.prompt for each in groups]


def test_a_round_without_earlier_groups_replays_nothing():
    assert Replay().beside([NOTHING] * 4) == []


def test_only_completions_above_the_mean_are_replayed_with_their_probabilities_and_advantages():
    replay, earlier = Replay(), group(0, 1, 0, 1)
    replay.beside([earlier])
    [replayed] = replay.beside([NOTHING])
    assert replayed.completions == (earlier.completions[1], earlier.completions[3])
    assert replayed.advantages == (earlier.advantages[1], earlier.advantages[3])
    assert replayed.levels == Levels((1, 1))


def test_a_group_is_replayed_once():
    replay = Replay()
    replay.beside([group(0, 1)])
    assert len(replay.beside([NOTHING])) == 1
    assert replay.beside([NOTHING]) == []


def test_a_round_replays_no_more_groups_than_it_has_without_an_advantage_and_the_newest_first():
    replay = Replay()
    replay.beside([group(0, 1, prompt=f"{number}?") for number in range(4)])
    assert prompts(replay.beside([NOTHING, group(0, 1, prompt="new?"), NOTHING])) == ["3?", "2?"]
    assert prompts(replay.beside([NOTHING])) == ["new?"]


def test_a_round_that_lacks_nothing_replays_nothing():
    replay = Replay()
    replay.beside([group(0, 1)])
    assert replay.beside([group(0, 1)]) == []


def test_groups_without_an_advantage_are_not_kept():
    replay = Replay()
    replay.beside([NOTHING, group(1, 1)])
    assert replay.beside([NOTHING]) == []


def test_what_waits_is_bounded_and_the_oldest_goes():
    replay = Replay()
    replay.beside([group(0, 1, prompt=f"{number}?") for number in range(KEPT + 3)])
    waiting = prompts(replay.beside([NOTHING] * 2 * KEPT))
    assert (len(waiting), waiting[-1]) == (KEPT, "3?")


def test_what_was_sampled_with_weights_that_are_taken_back_is_not_replayed():
    replay = Replay()
    replay.beside([group(0, 1)])
    replay.forget()
    assert replay.beside([NOTHING]) == []


@given(st.lists(st.lists(st.sampled_from([(0, 0), (0, 1), (1, 1), (1, 0)]), max_size=6), max_size=20))
def test_however_rounds_go_nothing_is_replayed_twice_and_only_earlier_informative_groups_are(rounds):
    replay, seen, replayed = Replay(), set(), []
    for number, rewards in enumerate(rounds):
        local = [group(*each, prompt=f"{number}/{k}") for k, each in enumerate(rewards)]
        given_back = prompts(replay.beside(local))
        assert len(given_back) <= sum(len(set(each)) == 1 for each in rewards)
        assert set(given_back) <= seen
        replayed += given_back
        seen |= {each.prompt for each in local if any(each.advantages)}
    assert len(replayed) == len(set(replayed))


def test_a_replayed_group_is_one_of_the_round_in_all_else():
    replay, earlier = Replay(), group(0, 1)
    replay.beside([earlier])
    [replayed] = replay.beside([NOTHING])
    left = {"completions": earlier.completions, "levels": earlier.levels, "advantages": earlier.advantages}
    assert replace(replayed, **left) == earlier


def test_of_a_group_with_levels_the_completions_above_its_mean_are_replayed():
    levels = Levels((0, 1, 3, 0), 4)
    completions = tuple(Sampled(str(number), "stop", (number,), (-0.5,)) for number in range(4))
    earlier = LocalGroup("sums", "?", bytes(32), completions, levels, local_advantages(levels))
    replay = Replay()
    replay.beside([earlier])
    [replayed] = replay.beside([NOTHING])
    assert replayed.levels == Levels((3,), 4)
