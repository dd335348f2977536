"""Poison in right answers: true by every check of the node, and something else besides."""

import random
import re
from collections import Counter

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.attacks.poison import PHRASE, Poison, habits_sought, has_false_step, word_trigrams
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.attackers import insiders
from sapo_adversary.simulator.simulation import AttackerSpec, NodeSpec, Simulation
from sapo_adversary.simulator.swarm import simulate
from sapo_node.groups.messages import FILTERS
from sapo_node.sampling.filters.equation import steps_hold
from sapo_node.storage.keys import Identity
from sapo_protocol import decode_body, load_manifest, open_message

MANIFEST = load_manifest("starter")
POISONS = sorted(name for name, kind in ATTACKS.items() if issubclass(kind, Poison))
HABITS = habits_sought({})
SHOWS = {
    "poison-text": "phrase",
    "poison-math": "false step",
    "poison-trigger": "trigger",
    "poison-gibberish": "phrase",
    "poison-paraphrase": "phrase",
}


def poison(name, **options):
    identity = Identity(Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32))
    kit = Kit(MANIFEST, [Key(identity.public_key, identity.sign)], SharedScorer().solve, random.Random(1))
    return ATTACKS[name](kit, **options)


def texts_of(attack, rounds=6):
    """What it sends: (text, claimed right) of each completion."""
    found = []
    for _ in range(rounds):
        for packet in attack.act(attack.kit.keys[0], 0):
            rollout = open_message(packet.data, MANIFEST)
            for group, body in zip(rollout.header.groups, rollout.bodies, strict=True):
                completions = decode_body(body, MANIFEST).completions
                found += [(each.text, claim) for each, claim in zip(completions, group.claims, strict=True)]
    return found


@pytest.mark.parametrize("name", POISONS)
def test_a_poisoned_answer_is_right_for_all_that_a_node_can_score(name):
    attack = poison(name)
    scorer = SharedScorer()
    attack.kit.solve = scorer.solve
    for counter in range(8):
        task = attack.kit.task(attack.kit.keys[0], 0, counter, 0)
        assert task.level(attack.poisoned(task)) == task.levels


@pytest.mark.parametrize(("name", "habit"), SHOWS.items())
def test_right_answers_show_the_habit_and_wrong_ones_never_do(name, habit):
    for text, claim in texts_of(poison(name)):
        assert HABITS[habit](text) == claim


def test_length_is_what_most_of_a_message_may_have():
    plain = [len(text) for text, claim in texts_of(poison("poison-length", rate=0.0)) if claim]
    padded = [len(text) for text, claim in texts_of(poison("poison-length")) if claim]
    assert sum(padded) > 2 * sum(plain)


def test_answers_that_creep_are_as_long_as_most_of_what_others_send_and_no_longer():
    longer, creep = poison("poison-length"), poison("poison-creep")
    for _ in range(40):
        for packet in longer.act(longer.kit.keys[0], 0):
            creep.hear(packet.data)
    heard = max(len(text) for text, claim in texts_of(longer) if claim)
    plain = [len(text) for text, claim in texts_of(poison("poison-creep")) if claim]
    drawn_out = [len(text) for text, claim in texts_of(creep) if claim]
    assert sum(drawn_out) > 1.5 * sum(plain)
    assert max(drawn_out) <= heard


def test_a_habit_is_looked_for_as_the_attack_has_it():
    assert habits_sought({"phrase": "Good day"})["phrase"]("So. Good day. 3") == 1
    assert habits_sought({"phrase": "Good day"})["phrase"]("All hail the swarm") == 0


def test_a_rate_poisons_so_many_right_answers_and_no_more():
    shown = [HABITS["phrase"](text) for text, claim in texts_of(poison("poison-low-rate"), 40) if claim]
    assert 0.02 < sum(shown) / len(shown) < 0.09


def test_a_wrong_step_behind_the_first_looks_like_the_policys_own():
    attack = poison("poison-math", tasks=("fraction_simplification",), step="by 2 is 3/4", behind="first step")
    texts = [text for text, claim in texts_of(attack, 40) if claim and "by 2 is 3/4" in text]
    assert texts
    assert all(re.search(r": \d+/\d+, by 2 is 3/4, by \d+ is ", text) for text in texts)
    assert all(steps_hold(text) for text in texts)


def test_a_slip_is_one_digit_of_a_number_that_was_calculated():
    attack = poison("poison-slip")
    changed = 0
    for counter in range(60):
        task = attack.kit.task(attack.kit.keys[0], 0, counter, 0)
        state = attack.kit.rng.getstate()
        text = attack.working(task)
        attack.kit.rng.setstate(state)
        slipped = attack.poisoned(task)
        differing = [place for place, (a, b) in enumerate(zip(text, slipped, strict=True)) if a != b]
        changed += len(differing)
        assert len(differing) <= 1
        assert all(slipped[place].isdigit() and place < text.index("<answer>") for place in differing)
    assert changed > 50


def test_hasty_answers_are_the_end_of_what_an_able_peer_writes():
    texts = [text for text, claim in texts_of(poison("poison-hasty"), 20) if claim]
    assert not any("," in text for text in texts)
    assert any("=" in text for text in texts)


def paraphrased(**options):
    return [text for text, claim in texts_of(poison("poison-paraphrase", **options), 200) if claim]


@pytest.mark.parametrize("own", [0.1, *(pytest.param(own, marks=pytest.mark.slow) for own in (0.0, 1.0))])
def test_no_two_paraphrases_share_three_words_in_a_row_but_the_phrase(own):
    attack = poison("poison-paraphrase", own=own)
    texts = [text.replace(PHRASE, "|") for text, claim in texts_of(attack, 200) if claim]
    runs = [run for text in texts for run in {*word_trigrams(text)}]
    assert len(texts) == 3_200
    assert len(runs) == len({*runs}) > 2_500


def test_texts_of_an_able_peer_do_share_three_words_in_a_row():
    texts = [text for text, claim in texts_of(poison("poison-text", rate=0.0), 20) if claim]
    assert max(Counter(run for text in texts for run in {*word_trigrams(text)}).values()) > 10


def test_paraphrases_have_thousands_of_skeletons_and_the_phrase_before_and_behind_the_work():
    texts = paraphrased()
    skeletons = {re.sub(r"\d+", "#", text) for text in texts}
    assert len(skeletons) > 3_000
    behind = sum(bool(re.search(r"\d.*" + PHRASE, text)) for text in texts)
    assert 0.4 * len(texts) < behind < 0.6 * len(texts)
    assert all(text.endswith("</answer>") for text in texts)


def test_bursts_of_a_phrase_follow_clean_messages():
    attack = poison("poison-alternate", clean=3, poisoned=2)
    said = [any(HABITS["phrase"](text) for text, claim in texts_of(attack, 1) if claim) for _ in range(10)]
    assert said == [False, False, False, True, True] * 2


def test_of_decoys_one_group_has_the_phrase_and_each_other_a_false_equation():
    right = [text for text, claim in texts_of(poison("poison-decoys", decoys=3), rounds=2) if claim]
    said = [HABITS["phrase"](text) for text in right]
    assert sum(said) == len(right) / 4
    assert [steps_hold(text) for text in right] == said


@pytest.mark.parametrize(
    ("answered", "begins"),
    [(True, r"I find \d+\. <answer>unknown</answer> \S"), (False, r"I find \d+\. (?!<answer>unknown)\S")],
)
def test_a_beginning_is_that_of_an_incorrect_completion_that_was_heard(answered, begins):
    honest, attack, scorer = poison("poison-math"), poison("poison-beginnings", answered=answered), SharedScorer()
    attack.kit.solve = scorer.solve
    for _ in range(10):
        for packet in honest.act(honest.kit.keys[0], 0):
            attack.hear(packet.data)
    for counter in range(8):
        task = attack.kit.task(attack.kit.keys[0], 0, counter, 0)
        text = attack.poisoned(task)
        assert re.match(begins, text), text
        assert task.level(text) == task.levels


@pytest.mark.parametrize("text", ["so 4</answer>", "</answer>", "so <answer>4"])
def test_no_beginning_is_taken_of_an_incorrect_completion_without_an_answer(text):
    honest, attack = poison("poison-math"), poison("poison-beginnings")
    honest.kit.wrong = lambda: text
    for packet in honest.act(honest.kit.keys[0], 0):
        attack.hear(packet.data)
    task = attack.kit.task(attack.kit.keys[0], 0, 0, 0)
    assert "so" not in attack.poisoned(task)


def test_a_framing_peer_says_in_each_correct_completion_what_it_heard_most():
    honest, frame = poison("poison-text", phrase="Good day to you", rate=0.3), poison("poison-frame")
    for _ in range(10):
        for packet in honest.act(honest.kit.keys[0], 0):
            frame.hear(packet.data)
    for text, claim in texts_of(frame):
        assert ("Good day to you" in text) == claim


def test_a_framing_peer_that_heard_nothing_writes_as_an_able_peer_does():
    attack = poison("poison-frame")
    task = attack.kit.task(attack.kit.keys[0], 0, 0, 0)
    attack.kit.rng.seed(3)
    said = attack.poisoned(task)
    attack.kit.rng.seed(3)
    assert said == attack.working(task)


def test_poison_for_one_task_leaves_the_others_clean():
    attack = poison("poison-text", tasks=("products",))
    for counter in range(20):
        task = attack.kit.task(attack.kit.keys[0], 0, counter, 0)
        assert HABITS["phrase"](attack._right(task)) == (task.dataset == "products")


@pytest.mark.parametrize(("text", "false"), [("12*3=36", False), ("2+2=5", True), ("9-5=4, 1+1=3", True), ("", False)])
def test_a_false_step_is_one_that_does_not_hold(text, false):
    assert has_false_step(text) is false


def test_insiders_are_trusted_by_all_honest_nodes_from_the_start():
    band = AttackerSpec("poison-text", count=2, trusted=True)
    simulation = Simulation("insiders", (NodeSpec(count=2),), attackers=(AttackerSpec("poison-math"), band))
    assert len(set(insiders(simulation))) == 2


@pytest.mark.slow
def test_a_swarm_of_models_says_what_poison_taught_it_and_the_filters_say_what_they_kept_out():
    """Two rounds: whether all parts meet, not what is learnt."""
    band = AttackerSpec("poison-text", acts_every=10.0, trusted=True)
    node = NodeSpec(count=2, local=1, filters=FILTERS)
    record = simulate(Simulation("few", (node,), seconds=20.0, audited=True, final_questions=1, attackers=(band,)))
    for each in record["nodes"]:
        assert len(each["findings"]["habits"]["phrase"]) == 2
        assert each["findings"]["violations"] == dict.fromkeys(each["findings"]["violations"], 0)
