"""Run nodes: `start`, `demo`."""

from contextlib import nullcontext
from functools import partial

import click
import trio

from sapo_node.app.config import Config
from sapo_node.app.running_node import RunningNode
from sapo_node.cli.commands.options import (
    START,
    SectionedCommand,
    as_json,
    fetch_model,
    option,
    own_identity,
    settings,
    unlocking,
)
from sapo_node.cli.demo import Plan, run_demo
from sapo_node.cli.live_view import LiveView, print_json_line


@click.command(cls=SectionedCommand)
@settings(*START)
@unlocking
@option("--rounds", type=click.IntRange(1), help="Stop after this many rounds.")
@as_json
def start(config: Config, *, rounds: int | None, passphrase: str | None, json_output: bool) -> None:
    """Run a node until Ctrl-C. It learns, shares rollouts, and verifies the rollouts of peers.

    The node makes its key if the file is missing. It finds peers on the local network through mDNS, and elsewhere
    through --bootstrap. Without peers it learns alone. After Ctrl-C it finishes its round and stops; a second Ctrl-C
    stops it at once. Neither loses state.

    With `auto` the model decides. The model in the package, and any below 50 M parameters, trains all weights and reads
    no examples. A larger one trains adapters of rank 16, and reads 3 worked examples before each prompt.
    `sapo-node init --dry-run` measures whether a model can learn from a swarm.

    \b
    sapo-node start
    sapo-node start --key other.key --bootstrap /ip4/192.0.2.7/tcp/4001/p2p/12D3KooW...
    sapo-node start --model smollm2 --swarm smollm2-easy          after `sapo-node model fetch smollm2`
    sapo-node start --model Qwen/Qwen2.5-0.5B-Instruct --examples 5
    sapo-node start --model smollm2 --generate http://127.0.0.1:8000       docs/start/your-server.md
    sapo-node start --no-train --listen /ip4/0.0.0.0/tcp/4001     a relay for others
    sapo-node start --no-train --feed --model my-model            for a trainer of your own: docs/start/your-trainer.md
    """  # noqa: D301 - click reads the backspace
    if rounds and not config.train and not config.fed:
        raise click.UsageError("--rounds counts rounds of training, and a node that only relays plays none")
    if config.train:
        fetch_model(config)
    identity, key_is_new = own_identity(config, passphrase)
    with nullcontext(print_json_line) if json_output else LiveView() as observer:
        node = RunningNode(config, identity, key_is_new=key_is_new, observer=observer)
        trio.run(partial(node.run, rounds=rounds))


@click.command(cls=SectionedCommand)
@option("--model", metavar="MODEL", help="The model of the honest nodes, named as for `start`. Without it: seed.")
@option("--swarm", metavar="NAME|FILE", help="The swarm of the tasks. Without it: starter; with --model: smollm2-easy.")
@option("--rounds", type=click.IntRange(1), help="Rounds of each honest node. Without it: 120, or 10 with --model.")
@option("--prompts", type=click.IntRange(1), help="Held-out prompts per task. Without it: 32, or 16 with --model.")
@as_json
def demo(*, model: str | None, swarm: str | None, rounds: int | None, prompts: int | None, json_output: bool) -> None:
    """Run three honest nodes and an attacker on this machine. The attacker has 64 keys behind one link.

    The processes connect over libp2p on loopback. No honest node names another in `trusted`: all peers are strangers
    to it. The malicious keys take turns, and claim rewards that their completions did not earn.

    The table shows for each honest node the share of the trained tokens that came from external groups, how many
    malicious keys it has banned, and how many of their tokens it trained on. Below the table stands how many rounds and
    seconds after contact the honest nodes first trained on external groups. At the end the demo prints the held-out
    pass@1 of the honest nodes before and after, and how many messages and groups were left out for which reason.

    With --model the honest nodes train that model, three copies at once. smollm2 takes about 2 GB of memory for each
    copy. On two cores that had other work the demo took 27 minutes. Ten rounds show the exchange; to see it learn,
    give 50.

    \b
    sapo-node demo
    sapo-node demo --model smollm2                 after `sapo-node model fetch smollm2`
    """  # noqa: D301 - click reads the backspace
    plan = Plan.of(model, swarm, rounds, prompts)
    fetch_model(Config(model=plan.model))
    run_demo(plan, json_output=json_output)
