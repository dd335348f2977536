"""The examples in the help texts: command lines that are accepted, and a question that the model in the package can
answer.
"""

import re
import shlex

import click
import pytest

from sapo_node.cli.main import cli
from sapo_node.groups.messages import GenerateRequest, LearnerOptions
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load

COMPLETIONS = 64


def commands(group, context):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield command
        if isinstance(command, click.Group):
            yield from commands(command, context)


def examples():
    """Each command line of a help text, without the remark behind it, other programs and redirections."""
    context = click.Context(cli)
    for command in (cli, *commands(cli, context)):
        for line in re.findall(r"^.*\bsapo-node .*$", command.help or "", re.MULTILINE):
            if "`" not in line:
                found = re.search(r"sapo-node (.*?)( {2,}| \||>|$)", line)
                yield found[1].strip()


@pytest.mark.filterwarnings("ignore:.*protected_args")
@pytest.mark.parametrize("example", sorted({*examples()}))
def test_each_example_of_a_help_text_is_accepted(example):
    command, context, words = cli, click.Context(cli), shlex.split(example)
    while isinstance(command, click.Group) and words:
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, words, parent=context, resilient_parsing=False)
        words = [*context.protected_args, *context.args] if isinstance(command, click.Group) else []
    assert not isinstance(command, click.Group) or command.invoke_without_command


def test_the_model_in_the_package_can_answer_the_question_in_the_help_of_chat():
    """Before any training it can in few completions; training makes them frequent."""
    chat = cli.get_command(click.Context(cli), "model").commands["chat"]
    question = re.search(r'echo "(.*)" \|', chat.help)[1]
    [group] = generate(
        load(LearnerOptions(checkpoints="")), GenerateRequest((Prompt(question),), COMPLETIONS, 80, 1, 1.0), 1024
    )
    assert sum("<answer>noom</answer>" in each.text for each in group) >= COMPLETIONS // 20
