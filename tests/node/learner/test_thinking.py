"""Models that think before they answer: their tokens of thinking are text, whatever the tokenizer calls them."""

import pytest
from tokenizers import AddedToken, Tokenizer

from sapo_node.groups.messages import GenerateRequest, LearnerOptions
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load
from tiny_models import TEMPLATE, write_model, write_tokenizer

THINKING_TEMPLATE = TEMPLATE + "{% if not enable_thinking %}<think></think>{% endif %}"
TEXT = "<think>two and two</think><answer>4</answer>"


def options(folder, **settings):
    return LearnerOptions(checkpoints="", model=str(folder), **settings)


@pytest.fixture(params=["special", "plain"])
def folder(request, tmp_path):
    """A model whose tokenizer has the tokens of thinking, as special tokens or as plain ones."""
    write_model(tmp_path, "llama")
    write_tokenizer(tmp_path, THINKING_TEMPLATE)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    added = [AddedToken(name, special=request.param == "special") for name in ("<think>", "</think>")]
    (tokenizer.add_special_tokens if request.param == "special" else tokenizer.add_tokens)(added)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_model_can_write_the_tokens_of_thinking(folder):
    policy = load(options(folder))
    thinking = [policy.tokenizer.convert_tokens_to_ids(name) for name in ("<think>", "</think>")]
    assert not policy.specials.intersection(thinking)
    assert not set(policy.forbidden.tolist()).intersection(thinking)


def test_its_own_text_has_the_tokens_of_thinking(folder):
    policy = load(options(folder))
    tokens = policy.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert policy.decode(tokens) == TEXT


def test_a_peers_text_with_thinking_is_read(folder):
    policy = load(options(folder))
    assert policy.decode(policy.encode_foreign(TEXT)) == TEXT


def test_a_prompt_says_whether_the_model_is_to_think(folder):
    asked = Prompt("2 + 2?")
    silent, thinking = (load(options(folder, thinking=each)) for each in (False, True))
    closed = silent.tokenizer("<think></think>", add_special_tokens=False)["input_ids"]
    assert silent.prompt_tokens(asked) == [*thinking.prompt_tokens(asked), *closed]


@pytest.mark.parametrize(
    ("text", "closes"),
    [
        ("<think>it goes between <answer> and </answer>", False),
        ("<think>it goes between <answer> and </answer></think>", False),
        (TEXT, True),
        ("<answer>4</answer>", True),
    ],
    ids=["while it thinks", "where its thinking ends", "after it has thought", "without thinking"],
)
def test_a_closing_tag_ends_a_completion_unless_the_model_still_thinks(folder, text, closes):
    policy = load(options(folder))
    assert policy.closes_answer(policy.tokenizer(text, add_special_tokens=False)["input_ids"]) is closes


@pytest.mark.parametrize(("ending", "thinks"), [("<think>\n", True), ("<think>\n\n</think>", False)])
def test_a_template_that_opens_thinking_in_the_prompt_has_the_model_think_from_the_first_token_on(
    tmp_path, ending, thinks
):
    write_model(tmp_path, "llama")
    write_tokenizer(tmp_path, TEMPLATE + ending)
    policy = load(options(tmp_path))
    named, answered = (
        policy.tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in ("it goes into <answer></answer>", "2+2=4</think><answer>4</answer>")
    )
    assert policy.closes_answer(named) is not thinks
    assert policy.closes_answer(answered)


def test_it_samples_with_either(folder):
    for thinking in (False, True):
        [group] = generate(
            load(options(folder, thinking=thinking)), GenerateRequest((Prompt("2 + 2?"),), 2, 4, 1), 1024
        )
        assert len(group) == 2
