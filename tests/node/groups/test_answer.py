"""Where sampling ends in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.groups.prompt import ANSWER_END, THINK, THOUGHT, answer_end


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
