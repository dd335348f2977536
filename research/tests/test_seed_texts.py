"""The lessons of the seed policy and its tokenizer."""

import random

import pytest

from research.seed import tokenizer as own_tokenizer
from research.seed.recipe import FIRST_TEACHING_SEED, Lessons, Recipe
from sapo_adversary import seed_texts as texts
from sapo_node.groups.messages import LearnerOptions
from sapo_node.tasks import build_task, score
from sapo_protocol import load_manifest

SPECS = {spec.dataset: spec for spec in load_manifest("starter").tasks}


def tasks(dataset, count=300):
    return [build_task(dataset, SPECS[dataset].config, FIRST_TEACHING_SEED + number) for number in range(count)]


def test_every_dataset_of_the_starter_swarm_has_a_careful_way():
    assert set(texts.STEPS) == set(texts.CAREFUL_OPENING) == set(SPECS) == set(dict(Recipe().careful_rates))


@pytest.mark.parametrize("dataset", SPECS)
def test_careful_text_says_something_before_its_answer(dataset):
    for task in tasks(dataset, 50):
        before = texts.careful(dataset, task.prompt, random.Random(2)).split("<answer>")[0]
        assert len(before) > 20


@pytest.mark.parametrize("dataset", SPECS)
def test_a_guess_is_wrong(dataset):
    rng = random.Random(4)
    others = tuple(task.answer for task in tasks(dataset, 20))
    for task in tasks(dataset, 100):
        assert not score(task, texts.guess(task.answer, others, rng))


def test_a_guess_is_wrong_even_where_all_others_share_the_answer():
    assert "<answer>7</answer>" not in texts.guess("7", ("7", "7"), random.Random(5))


@pytest.mark.parametrize("dataset", SPECS)
def test_no_single_answer_is_right_often(dataset):
    answers = [task.answer for task in tasks(dataset, 1000)]
    assert len(set(answers)) >= 50
    assert max(map(answers.count, set(answers))) / len(answers) < 0.06


def test_a_step_of_a_recipe_is_always_the_same():
    configs = {name: spec.config for name, spec in SPECS.items()}
    recipe = Recipe()
    for step in (0, recipe.teach_steps):
        assert Lessons(recipe, configs).step(step) == Lessons(recipe, configs).step(step)
        assert Lessons(recipe, configs).step(step) != Lessons(recipe, configs).step(step + 1)


def test_burying_shows_the_opening_of_kept_skill_without_training_it():
    recipe = Recipe()
    lessons = Lessons(recipe, {name: spec.config for name, spec in SPECS.items()}).step(recipe.teach_steps)
    kept = [lesson for lesson in lessons if lesson.given]
    assert len(kept) > len(lessons) // 4
    assert all(lesson.text[: lesson.given].endswith(": ") for lesson in kept)


@pytest.fixture(scope="module")
def policy():
    from sapo_node.learner.model import load

    return load(LearnerOptions(checkpoints=""))


def test_digits_are_single_tokens(policy):
    assert len(policy.encode_foreign("1234567890")) == 10


def test_answer_tags_are_ordinary_text(policy):
    [opening] = policy.encode_foreign("<answer>")
    assert opening not in policy.specials


@pytest.mark.parametrize("text", ["héllo 漢字 🙂\n\t", "<|end|> <|pad|>", "\x00\x7f", " <answer>  </answer> "])
def test_any_text_survives_the_tokenizer(policy, text):
    assert policy.decode(policy.encode_foreign(text)) == text


def test_careful_completions_fit_into_the_limit(policy):
    for dataset in SPECS:
        for task in tasks(dataset, 100):
            text = texts.careful(dataset, task.prompt, random.Random(6))
            assert len(policy.encode_foreign(text)) < 80
            assert len(text.encode()) < load_manifest("starter").max_completion_bytes


def test_a_tokenizer_spells_rare_words_and_keeps_frequent_phrases():
    prompts = [f"Give the sum of these numbers: {n}\n" for n in range(100)]
    built = own_tokenizer.build(prompts, ["so zebra"], 300)
    assert len(built.encode("Give the sum of these numbers: 7").ids) == 2
    assert len(built.encode("zebra").ids) == 5
