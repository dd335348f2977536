"""What a model reads: the system prompt, worked examples as turns of a chat, and the task's prompt."""

import torch

from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.prompt import SYSTEM, Example, Examples, Prompt, chat
from sapo_node.learner.model import load
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
