"""The command line: `sapo-node`."""

import json
import logging
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from sapo_node import inspection
from sapo_node.app import RunningNode
from sapo_node.config import Config, load_config, render_config
from sapo_node.conformance.cases import load_cases
from sapo_node.conformance.driver import Reader
from sapo_node.conformance.report import Report, run_cases
from sapo_node.conformance.report import render as render_conformance
from sapo_node.demo import run_demo
from sapo_node.evaluation import evaluate
from sapo_node.keyfile import Identity, PassphraseNeeded, create_key, load_key
from sapo_node.overview import Overview, overview
from sapo_node.report import LiveView, print_json_line
from sapo_node.state import read_database, state_folder
from sapo_node.view import peer_table, render
from sapo_protocol import LocalError, SapoError, evidence_topic, load_manifest, render_manifest, rollouts_topic

Command = Callable[..., None]

stderr = Console(stderr=True)


def main() -> None:
    """Entry point: an error of ours is one line on stderr and exit code 1."""
    try:
        cli()
    except* KeyboardInterrupt:
        sys.exit(130)
    except* SapoError as group:
        for error in _leaves(group):
            _tell(error)
        sys.exit(1)


def _tell(error: BaseException) -> None:
    stderr.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves[:1]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="sapo-node")
@click.option("-v", "--verbose", is_flag=True, help="Log what is going on, to stderr.")
def cli(*, verbose: bool) -> None:
    """Train a language model together with strangers, believing none of them.

    \b
    A first node, on this machine:     sapo-node start
    A second one, in a new terminal:   sapo-node start --key other.key
    Everything at once, with a cheat:  sapo-node demo
    """  # noqa: D301 - click reads the backspace
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    if not verbose:
        # What libp2p logs about strangers' connections is of no use to an operator; our own notices tell what matters.
        logging.getLogger("libp2p").setLevel(logging.CRITICAL)


def configured(command: Command) -> Command:
    """Add --config, --swarm, --key and --state, and hand the command one Config."""

    @click.option(
        "--config", "config_file", type=click.Path(path_type=Path), help="A TOML file; see `sapo-node config`."
    )
    @click.option("--swarm", help="The swarm: a shipped manifest or the path of one.  [default: starter]")
    @click.option("--key", help="The key file of the node.  [default: node.key]")
    @click.option("--state", help="The folder that keeps state.")
    @wraps(command)
    def wrapped(config_file: Path | None, swarm: str, key: str, state: str, **options: Any) -> None:
        config = load_config(config_file).overridden({"swarm": swarm, "key": key, "state": state})
        command(config=config, **options)

    return wrapped


as_json = click.option("--json", "json_output", is_flag=True, help="Print JSON for scripts.")


@cli.command()
@configured
@click.option("--listen", multiple=True, metavar="MULTIADDR", help="Listen here, e.g. /ip4/0.0.0.0/tcp/4001.")
@click.option("--announce", multiple=True, metavar="MULTIADDR", help="The address others should dial, if another.")
@click.option("--bootstrap", multiple=True, metavar="MULTIADDR", help="A node to dial, ending in /p2p/<peer id>.")
@click.option("--mdns/--no-mdns", default=None, help="Find nodes on the local network.  [default: on]")
@click.option("--local", type=int, metavar="I", help="Own groups per round.  [default: 4]")
@click.option("--external", type=int, metavar="J", help="Groups of others per round, at most.  [default: 4]")
@click.option("--model", help="A Hugging Face model folder.  [default: seed, the policy in the package]")
@click.option("--no-train", "train", flag_value=False, type=bool, default=None, help="Only verify and relay.")
@click.option("--rounds", type=click.IntRange(1), help="Stop by itself after this many rounds.")
@click.option("--unconfined", is_flag=True, default=None, help="Score others' text even where it cannot be confined.")
@click.option("--passphrase", envvar="SAPO_NODE_PASSPHRASE", help="Of the key file; asked for when needed.")
@as_json
def start(config: Config, *, rounds: int | None, passphrase: str | None, json_output: bool, **options: Any) -> None:
    """Run a node: learn, share, verify, until Ctrl-C.

    The key is made when its file is missing. Peers are found on the local network by themselves and elsewhere through
    --bootstrap; without any the node learns alone. Ctrl-C ends it after its round; nothing is lost whenever it ends.

    \b
    sapo-node start
    sapo-node start --key other.key --bootstrap /ip4/192.0.2.7/tcp/4001/p2p/12D3KooW...
    sapo-node start --no-train --listen /ip4/0.0.0.0/tcp/4001     a relay for others
    """  # noqa: D301 - click reads the backspace
    config = config.overridden(options)
    path = Path(config.key)
    key_is_new = not path.exists()
    identity = create_key(path, passphrase) if key_is_new else _unlock(path, passphrase)
    if key_is_new and not json_output:
        stderr.print(f"made a new key in {path} (mode 0600); this node is {identity.peer_id}", highlight=False)
    with nullcontext(print_json_line) if json_output else LiveView() as observer:
        node = RunningNode(config, identity, key_is_new=key_is_new, observer=observer)
        trio.run(partial(node.run, rounds=rounds))


def _unlock(path: Path, passphrase: str | None) -> Identity:
    """Load a key, asking for its passphrase where there is somebody to ask."""
    try:
        return load_key(path, passphrase)
    except PassphraseNeeded:
        if passphrase or not sys.stdin.isatty():
            raise
        return load_key(path, click.prompt(f"passphrase of {path}", hide_input=True, err=True))


@cli.command()
@click.option("--rounds", type=click.IntRange(1), default=120, show_default=True, help="Rounds of each honest node.")
@click.option("--questions", type=click.IntRange(1), default=32, show_default=True, help="Held-out questions per task.")
@as_json
def demo(*, rounds: int, questions: int, json_output: bool) -> None:
    """A swarm on this machine: three honest nodes and one that cheats.

    Four processes meet over real libp2p on loopback. The fourth claims rewards it has not earned, copies others' text
    and sends garbage. At the end: held-out pass@1 of the honest nodes before and after, what was refused and why, and
    what the cheat got out of it.
    """
    run_demo(rounds=rounds, questions=questions, json_output=json_output)


@cli.command()
@click.option("--key", default="node.key", show_default=True, type=click.Path(path_type=Path), help="File to write.")
@click.option("--passphrase/--no-passphrase", default=False, help="Ask for a passphrase to encrypt it with.")
@as_json
def keygen(key: Path, *, passphrase: bool, json_output: bool) -> None:
    """Make a key without starting a node.

    `start` makes its own. A key made beforehand is older than its node's state, so that node trains at once but
    listens for two epochs before it publishes: it cannot know that no copy of the key is in use.
    """
    secret = click.prompt("passphrase", hide_input=True, confirmation_prompt=True, err=True) if passphrase else None
    identity = create_key(key, secret)
    if json_output:
        click.echo(json.dumps({"key": str(key), "peer_id": identity.peer_id}))
    else:
        click.echo(f"{identity.peer_id}\nwritten to {key} (mode 0600)")


def _overview(config: Config) -> Overview:
    identity = _unlock(Path(config.key), None)
    database = read_database(state_folder(Path(config.state), load_manifest(config.swarm), identity.peer_id))
    return overview(database)


@cli.command()
@configured
@as_json
def status(config: Config, *, json_output: bool) -> None:
    """Show what a node of this machine has done, running or not."""
    view = _overview(config)
    if json_output:
        click.echo(json.dumps(view.as_dict()))
    else:
        Console().print(render(view))


@cli.command()
@configured
@as_json
def peers(config: Config, *, json_output: bool) -> None:
    """List the peers a node knows, with their standing and what was trained on."""
    view = _overview(config)
    connected = set(view.session.get("connected", ()))
    if json_output:
        click.echo(json.dumps([{**asdict(peer), "connected": peer.peer in connected} for peer in view.peers]))
        return
    table = peer_table(view.peers, connected, view.own_tokens, shorten=False)
    Console().print(table if view.peers else "no peers heard of yet")


@cli.command("eval")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file; see `sapo-node config`.")
@click.option("--swarm", help="The swarm whose tasks are asked.  [default: starter]")
@click.option("--key", help="The key of the node to measure, with --state.  [default: node.key]")
@click.option("--state", help="Measure the policy a node has learnt; without it, the policy a node starts with.")
@click.option("--model", help="Measure this Hugging Face model folder.")
@click.option("--questions", type=click.IntRange(1), default=64, show_default=True, help="Held-out questions per task.")
@as_json
def eval_(config_file: Path | None, *, state: str | None, questions: int, json_output: bool, **options: Any) -> None:
    """Measure held-out pass@1: one sampled answer to each question that no round ever assigns."""
    config = load_config(config_file).overridden({**options, "state": state})
    manifest = load_manifest(config.swarm)
    folder = None
    if state:
        folder = state_folder(Path(config.state), manifest, _unlock(Path(config.key), None).peer_id)
        read_database(folder).close()
    with Progress(console=stderr, transient=True, disable=json_output) as progress:
        bar = progress.add_task("asking", total=questions * len(manifest.tasks))
        advance = partial(progress.advance, bar)
        result, step = trio.run(partial(evaluate, config, manifest, folder, questions=questions, progress=advance))
    if json_output:
        click.echo(
            json.dumps(
                {"pass_at_1": result.pass_at_1, "per_task": result.per_task, "questions": questions, "step": step}
            )
        )
        return
    table = Table(
        "task", "pass@1", title=f"held-out, {questions} questions a task, after {step} rounds", title_justify="left"
    )
    for task, share in result.per_task.items():
        table.add_row(task, f"{share:.3f}")
    table.add_row("mean", f"{result.pass_at_1:.3f}", style="bold")
    Console().print(table)


@cli.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@as_json
def config(file: Path | None, *, json_output: bool) -> None:
    """Print the configuration, every key with its meaning: the defaults, or what FILE makes of them.

    \b
    sapo-node config > node.toml
    sapo-node start --config node.toml
    """  # noqa: D301 - click reads the backspace
    loaded = load_config(file)
    click.echo(json.dumps(asdict(loaded)) if json_output else render_config(loaded), nl=json_output)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--swarm", default="starter", show_default=True, help="The swarm it was signed for.")
@as_json
def verify(file: Path, *, swarm: str, json_output: bool) -> None:
    """Check one rollout message, as it travels: signature, task, and every reward, computed again.

    Exit code 0 if all of it holds, 1 if anything does not.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise LocalError(f"cannot read {file}: {error.strerror}") from error
    finding = trio.run(partial(inspection.inspect, data, load_manifest(swarm)))
    if json_output:
        click.echo(json.dumps(asdict(finding)))
    else:
        Console().print(inspection.render(finding))
    sys.exit(0 if finding.holds else 1)


@cli.command()
@click.argument("swarm", default="starter")
@click.option("--encoded", type=click.Path(path_type=Path), metavar="FILE", help="Write the encoded manifest there.")
@as_json
def manifest(swarm: str, *, encoded: Path | None, json_output: bool) -> None:
    """Print the manifest of SWARM (a shipped one or the path of a TOML file), its network id and its topics.

    The file of --encoded holds the bytes whose SHA-256 is the network id: what another implementation joins by.

    \b
    sapo-node manifest starter > mine.toml
    sapo-node manifest interop --encoded interop.cbor
    """  # noqa: D301 - click reads the backspace
    loaded = load_manifest(swarm)
    topics = {"rollouts": rollouts_topic(loaded), "evidence": evidence_topic(loaded)}
    if encoded is not None:
        try:
            encoded.write_bytes(loaded.encoded)
        except OSError as error:
            raise LocalError(f"cannot write {encoded}: {error.strerror}") from error
    if json_output:
        click.echo(json.dumps({"name": loaded.name, "network_id": loaded.network_id.hex(), "topics": topics}))
        return
    click.echo(f"# network id {loaded.network_id.hex()}")
    for topic in topics.values():
        click.echo(f"# topic {topic}")
    click.echo(render_manifest(loaded), nl=False)


@cli.command()
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARGUMENT ...]]")
@click.option("--rule", default="", metavar="RULE", help="Only the vectors of a rule, or of a chapter: ENC-3, ENC.")
@as_json
def conformance(command: tuple[str, ...], *, rule: str, json_output: bool) -> None:
    """Test an implementation of the wire in any language against the vectors of the standard.

    COMMAND is a reader: a program that is asked by lines, {"kind": "header", "input": {...}}, and answers each by one,
    {"verdict": "accept", "output": {...}} or {"verdict": "header"}. The contract is in spec/conformance/README.md.
    Without a command this node's own reader is run.

    \b
    sapo-node conformance
    sapo-node conformance -- node spec/conformance/js/cli.mjs
    sapo-node conformance --rule ENV -- ./my-reader --quiet

    Exit code 0 if all agree, 1 if any differs, 2 if the reader could not be run.
    """  # noqa: D301 - click takes the very character for "as it stands"
    command = command or (sys.executable, "-m", "sapo_node.conformance")
    quiet = json_output or not stderr.is_terminal
    try:
        cases = load_cases(rule)
        with Progress(console=stderr, transient=True, disable=quiet) as progress, Reader(command) as reader:
            bar = progress.add_task("asking", total=len(cases))
            report = Report(command, run_cases(cases, reader, progress=partial(progress.advance, bar)))
    except LocalError as error:
        _tell(error)
        sys.exit(2)
    if json_output:
        click.echo(json.dumps(report.as_dict()))
    else:
        Console().print(render_conformance(report), soft_wrap=True)
    sys.exit(0 if report.all_agree else 1)
