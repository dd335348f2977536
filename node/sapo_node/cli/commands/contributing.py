"""Run a node whose completions a server, a program or a person writes: `contribute`."""

import os
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial

import click
import trio

from sapo_node.app.config import AUTO, Config
from sapo_node.app.events import Observer
from sapo_node.app.recipe import EXAMPLES
from sapo_node.app.running_node import RunningNode
from sapo_node.cli.commands.options import (
    NETWORK,
    NODE,
    Number,
    SectionedCommand,
    as_json,
    given,
    option,
    own_identity,
    settings,
    stderr,
    unlocking,
)
from sapo_node.cli.contribute_terminal import Person
from sapo_node.cli.live_view import LiveView, print_json_line
from sapo_node.contributors.chat_format import extra_body as read_extra_body
from sapo_node.contributors.endpoint import endpoint
from sapo_node.contributors.exchange import KEY_VARIABLE
from sapo_node.contributors.program import program
from sapo_node.contributors.rounds import answer_seconds
from sapo_node.training.rollout import Answerer
from sapo_protocol import load_manifest


@click.command(cls=SectionedCommand)
@settings(*NODE, *NETWORK, "dashboard", "local", "examples", "max_tokens")
@unlocking
@option("--endpoint", "url", metavar="URL", help="Ask this server, e.g. http://127.0.0.1:8000/v1.")
@option("--model", metavar="NAME", help="The model that the endpoint runs.")
@option("--temperature", type=Number(0, 2), default=1.0, help="Sampling temperature of the endpoint.")
@option(
    "--extra-body",
    metavar="JSON",
    help='More keys for each request to the endpoint, e.g. \'{"reasoning_effort": "low"}\'.',
)
@option("--program", "command", metavar="COMMAND", help="Ask this program. It runs without a sandbox.")
@option("--terminal", is_flag=True, help="Answer the prompts yourself.")
@option("--rounds", type=click.IntRange(1), help="Stop after this many rounds with completions.")
@as_json
def contribute(
    config: Config,
    *,
    url: str | None,
    model: str | None,
    temperature: float,
    extra_body: str | None,
    command: str | None,
    terminal: bool,
    rounds: int | None,
    passphrase: str | None,
    json_output: bool,
) -> None:
    """Share completions of a server, a program or yourself. The node trains nothing.

    The node verifies and relays like `start --no-train`. It also publishes groups of G completions to the tasks that
    the swarm assigns to it. Nodes that train learn from groups with both correct and incorrect completions. They do
    not train on completions longer than their own --max-tokens. They do not report what they trained on, so this
    command cannot show it.

    The node shares at most 64 rounds per epoch: peers keep no more of one node. It shares no round without an answer.

    \b
    --endpoint  The server must speak the chat completions API of OpenAI. If it needs a key, set SAPO_NODE_API_KEY.
                A round asks for I x G completions; --rounds bounds the cost: a round of empty completions counts.
                After 8 rounds without a text the command ends. `auto` is 3 examples and 80 tokens.
    --program   For each prompt it reads a line {"prompt": "...", "system": "...", "completions": G}, and within 120 s
                writes a line ["...", ...] of up to G completions with <answer> and </answer> around the results. It
                must flush. [] skips the prompt. With --examples the line has "examples": [["prompt", "answer"], ...].
                If the program fails, the node starts it again. A failure before its first answer ends the command.
                Stderr goes to the log.
    --terminal  You may type up to G different answers to a prompt. The node adds the tags unless you type them.
                You have one epoch minus 30 s. Without --local a round has one prompt.

    A group always has exactly G completions. The node fills missing ones with empty completions, which count as
    incorrect. A group with one correct completion is still informative.

    \b
    sapo-node contribute --terminal
    sapo-node contribute --program "python3 solver.py"
    sapo-node contribute --endpoint http://127.0.0.1:8000/v1 --model qwen3-4b
    """  # noqa: D301 - click reads the backspace
    if sum(map(bool, (url, command, terminal))) != 1 or bool(url) != bool(model):
        raise click.UsageError("give either --endpoint with --model, or --program, or --terminal")
    if extra_body is not None and not url:
        raise click.UsageError("--extra-body needs --endpoint: it goes into the requests to a server")
    extra = read_extra_body(extra_body or "{}")
    config = config.overridden({"train": False, "model": model or ("program" if command else "person")})
    if terminal and "local" not in given():
        config = config.overridden({"local": 1})
    if url and config.examples == AUTO:
        config = config.overridden({"examples": EXAMPLES})
    manifest = load_manifest(config.swarm)
    identity, key_is_new = own_identity(config, passphrase)
    with ExitStack() as stack:
        observer: Observer = print_json_line
        contributor: AbstractAsyncContextManager[Answerer]
        if terminal:
            person = Person(stderr, max_bytes=manifest.max_completion_bytes, seconds=answer_seconds(manifest))
            contributor = person.at_terminal()
            observer = print_json_line if json_output else person
        elif not json_output:
            observer = stack.enter_context(LiveView())
        if command:
            contributor = program(command, max_bytes=manifest.max_completion_bytes)
        if url and model:
            contributor = endpoint(
                url,
                model=model,
                key=os.environ.get(KEY_VARIABLE),
                temperature=temperature,
                max_bytes=manifest.max_completion_bytes,
                extra=extra,
            )
        node = RunningNode(config, identity, key_is_new=key_is_new, observer=observer, contributor=contributor)
        trio.run(partial(node.run, rounds=rounds))
