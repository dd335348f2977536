"""The prompt with its examples, the answer in a completion, and the name of a task."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from context import context_of
from fetching import turn_of
from rollouts import right_and_wrong, rollout
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.prompt import SYSTEM, Example, Examples, Prompt, chat, task_name
from sapo_node.learner.model import load
from sapo_node.tasks.answer import ANSWER_END, THINK, THOUGHT, answer_end
from sapo_node.training.evaluation import measure
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.catalogue import build_examples
from sapo_node.verification.verifier import Verifier
from sapo_protocol import TaskSpec, load_manifest, shipped_manifests
from swarm_parts import KnowingScorer, OpenScorer, Oracle
from tiny_models import TEMPLATE, write_model, write_tokenizer

torch.set_num_threads(1)
PROMPT = Prompt("2 + 2?", (Example("1 + 1?", "<answer>2</answer>"), Example("3 + 3?", "<answer>6</answer>")))
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE


def read(tmp_path, template):
    write_model(tmp_path, "llama")
    write_tokenizer(tmp_path, template)
    policy = load(LearnerOptions(checkpoints="", model=str(tmp_path)))
    return policy.decode(policy.prompt_tokens(PROMPT))


def test_each_example_is_a_turn_of_the_user_and_one_of_the_assistant():
    assert [message["role"] for message in chat(PROMPT)] == ["system", *["user", "assistant"] * 2, "user"]


def test_a_chat_template_shows_the_turns(tmp_path):
    assert read(tmp_path, TEMPLATE) == (
        f"[system] {SYSTEM}\n[user] 1 + 1?\n[assistant] <answer>2</answer>\n[user] 3 + 3?\n"
        "[assistant] <answer>6</answer>\n[user] 2 + 2?\n[assistant] "
    )


def test_a_template_without_a_system_role_has_the_system_prompt_in_the_first_turn(tmp_path):
    assert read(tmp_path, NO_SYSTEM).startswith(f"[user] {SYSTEM}\n\n1 + 1?\n[assistant] <answer>2</answer>\n")


def test_a_model_without_a_template_reads_the_turns_as_lines(tmp_path):
    assert read(tmp_path, None) == (f"{SYSTEM}\n\n1 + 1?\n<answer>2</answer>\n\n3 + 3?\n<answer>6</answer>\n\n2 + 2?\n")


def test_a_prompt_of_a_task_without_examples_has_none():
    assert Examples(3, {"other": PROMPT.examples}).prompt("sums", "2 + 2?") == Prompt("2 + 2?")


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        ("so <answer>4</answer>", "so <answer>4</answer>"),
        ("<answer>3</answer> 2+2=4. So <answer>4</answer>", "<answer>3</answer>"),
        ("so</answer> <answer>4</answer>", "so</answer>"),
        ("<think></answer></think> <answer>4</answer>", "<think></answer></think> <answer>4</answer>"),
        ("</think><answer>3</answer> <answer>4</answer>", "</think><answer>3</answer>"),
        ("<think>a</think><answer>3</answer><think>b</think><answer>4</answer>", "<think>a</think><answer>3</answer>"),
    ],
    ids=["one answer", "a guess before it", "no opening", "named in thinking", "thinking is over", "thinks twice"],
)
def test_sampling_ends_behind_the_first_closing_tag_outside_thinking(text, sampled):
    assert text[: answer_end(text)] == sampled


@pytest.mark.parametrize("text", ["", "so <answer>4", "<think>the tags <answer> and </answer>"])
def test_sampling_does_not_end_in_a_text_without_a_closing_tag_outside_thinking(text):
    assert answer_end(text) is None


def test_a_text_behind_a_prompt_that_began_to_think_ends_with_the_first_answer_after_the_thinking():
    text = "it goes between <answer> and </answer>. 2+2=4</think><answer>4</answer>"
    assert answer_end(text, thinks=True) == len(text)
    assert answer_end(text.replace(THOUGHT, ""), thinks=True) is None


@given(st.lists(st.sampled_from([THINK, THOUGHT, ANSWER_END, "<answer>", "4", "<", ">"])))
def test_sampling_ends_at_the_shortest_beginning_that_closes_an_answer_while_nobody_thinks(parts):
    text = "".join(parts)
    beginnings = [text[:end] for end in range(len(text) + 1)]
    closed = [each for each in beginnings if each.endswith(ANSWER_END) and each.rfind(THINK) <= each.rfind(THOUGHT)]
    assert answer_end(text) == (len(closed[0]) if closed else None)


EASY, HARD = {"min_digits": 1, "max_digits": 1}, {"min_digits": 4, "max_digits": 4}
NAMES = {"products 1", "products 2", "chain_sum"}


@pytest.fixture
def twice():
    """A manifest with easy and hard products."""
    tasks = (TaskSpec("products", EASY, 1), TaskSpec("chain_sum", {}, 1), TaskSpec("products", HARD, 1))
    return replace(load_manifest("starter"), tasks=tasks)


@pytest.mark.parametrize("swarm", shipped_manifests())
def test_a_task_of_which_the_dataset_is_listed_once_has_the_name_of_the_dataset(swarm):
    manifest = load_manifest(swarm)
    names = [task_name(manifest, spec.dataset, spec.config) for spec in manifest.tasks]
    assert names == [spec.dataset for spec in manifest.tasks]


def test_tasks_of_one_dataset_are_numbered_in_the_order_of_the_manifest(twice):
    names = [task_name(twice, spec.dataset, spec.config) for spec in twice.tasks]
    assert names == ["products 1", "chain_sum", "products 2"]


def test_a_task_that_is_listed_twice_is_one_task(twice):
    again = replace(twice, tasks=(twice.tasks[0], *twice.tasks[:2]))
    assert task_name(again, "products", EASY) == "products"


async def test_each_configuration_of_a_dataset_has_its_own_examples(twice):
    examples = await build_examples(twice, OpenScorer(), 2)
    easy, hard = (examples.prompt(name, "?").examples for name in ("products 1", "products 2"))
    assert len(easy) == len(hard) == 2
    assert max(len(each.prompt) for each in easy) < min(len(each.prompt) for each in hard)


async def test_each_configuration_of_a_dataset_is_evaluated_by_itself(twice):
    oracle = Oracle(twice, random.Random(1), skill=1.0)
    found = await measure(twice, oracle, KnowingScorer(oracle.answers), prompts=2, samples=1, max_tokens=9)
    assert found.levels == dict.fromkeys(NAMES, (Levels((1,)), Levels((1,))))
    assert found.truncated.keys() == NAMES


async def test_groups_of_a_peer_name_the_configuration_of_their_task(twice, author, database):
    of_twice = replace(author, manifest=twice)
    groups, bodies, _ = zip(*(right_and_wrong(of_twice, k) for k in range(16)), strict=True)
    verifier = Verifier(context_of(twice, random.Random(1)), OpenScorer(), Ledger(database))
    verified = await verifier.verify(turn_of(verifier, rollout(of_twice, groups, bodies)))
    assert {group.dataset for group in verified.values()} == NAMES
