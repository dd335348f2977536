"""A conversation with a policy: what it reads before a prompt, and how an answer is shown."""

from sapo_node.cli.commands.model import Conversation, lines_of
from sapo_node.groups.messages import Sampled
from sapo_node.groups.prompt import Example


def talk(remembered):
    conversation = Conversation(remembered)
    for number in range(3):
        conversation.add(f"question {number}", f"answer {number}")
    return conversation.prompt("now?")


def test_the_last_turns_stand_before_a_prompt():
    prompt = talk(2)
    assert prompt.text == "now?"
    assert prompt.examples == (Example("question 1", "answer 1"), Example("question 2", "answer 2"))


def test_a_model_that_reads_no_examples_reads_no_earlier_turns():
    assert talk(0).examples == ()


def test_an_answer_cannot_steer_the_terminal():
    assert lines_of(Sampled("one\x1b[2J\ntwo\u202e", "stop")) == "one\\x1b[2J\ntwo\\u202e"


def test_a_cut_answer_is_marked():
    assert lines_of(Sampled("one", "length")) == "one […]"
