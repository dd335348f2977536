"""Show the peers of a node, and pass the operator's decisions on to other nodes: `peers`."""

import time
from dataclasses import asdict
from pathlib import Path

import click

from sapo_node.app.config import Config
from sapo_node.cli.commands.deciding import writable_database
from sapo_node.cli.commands.group import DefaultGroup
from sapo_node.cli.commands.options import as_json, configured, database_of, unlock, view_of, write_file
from sapo_node.cli.commands.paths import PATH
from sapo_node.cli.commands.wire import show_proof
from sapo_node.cli.tables import decision_table, tier_line
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.observability import explain
from sapo_node.trust.constants import PeerState
from sapo_node.trust.decisions import COMMAND, CONFIG, Decision, decided_by
from sapo_node.trust.peer_list import MAX_BYTES, import_list, read_list, write_list
from sapo_protocol import LocalError, load_manifest
from sapo_protocol.files import read_bounded


@click.group(cls=DefaultGroup, default="show")
def peers() -> None:
    """Show the peers of a node, their states and who decided them.

    `show` may be left out. `sapo-node peers show --help` lists its options.

    A node trusts and bans by what it verified itself, and by what its operator decides (`sapo-node trust`, `ban`).
    `export` and `import` pass such decisions on to other nodes of the operator, as a signed list.

    \b
    sapo-node peers                                        all peers; --json for scripts
    sapo-node peers ACgPL7x5                               one peer, by the end of its id
    sapo-node peers ACgPL7x5 --evidence                    why it is banned for good
    sapo-node peers export list.json                       on one node
    sapo-node peers import list.json --from 12D3KooW...    on the others
    """  # noqa: D301 - click reads the backspace


@peers.command()
@click.argument("peer", required=False)
@configured
@click.option("--evidence", is_flag=True, help="Show the evidence for which PEER was banned for good.")
@click.option("--output", type=PATH, metavar="FILE", help="Write the evidence to FILE.")
@as_json
def show(config: Config, *, peer: str | None, evidence: bool, output: Path | None, json_output: bool) -> None:
    """List the peers of a node. With PEER, explain one.

    For each peer: its state, who decided it, why, since when and until when.

    The beginning or the end of a peer id is enough. The evidence is two contents that PEER signed for one round.
    Anybody can check FILE: `sapo-node verify --evidence FILE`.
    """
    if evidence or output:
        if peer is None:
            raise click.UsageError("--evidence and --output need a PEER; `sapo-node peers` lists them")
        _show_evidence(config, peer, output, json_output=json_output)
    elif peer:
        with database_of(config) as database:
            told = explain.peer(database, peer, load_manifest(config.swarm))
        say_json(told.as_dict()) if json_output else say(told.text)
    else:
        _list_peers(config, json_output=json_output)


def _list_peers(config: Config, *, json_output: bool) -> None:
    view, _ = view_of(config, peers=None)
    if json_output:
        connected = set(view.session.get("connected", ()))
        say_json([{**asdict(peer), "connected": peer.peer in connected} for peer in view.peers])
        return
    terminal = Terminal()
    if not view.peers:
        terminal.print("no peers known yet")
        return
    terminal.print(tier_line(view))
    terminal.print(decision_table(view, width=terminal.width))


def _show_evidence(config: Config, peer: str, output: Path | None, *, json_output: bool) -> None:
    with database_of(config) as database:
        named = explain.peer_named(database, peer)
        row = database.row("SELECT message FROM evidence WHERE peer = ?", named)
    if row is None:
        raise LocalError(f"this node has no evidence against {named}; `sapo-node peers` lists the banned peers")
    if output is not None:
        write_file(output, row[0])
    show_proof(row[0], load_manifest(config.swarm), json_output=json_output)


@peers.command("export")
@click.argument("file", type=PATH)
@configured
@as_json
def export_list(config: Config, *, file: Path, json_output: bool) -> None:
    """Write the operator's decisions to FILE. The key of this node signs them.

    The list holds what `trust`, `ban` and the configuration decided, and not what came with lists of other nodes.
    """
    identity = unlock(Path(config.key), None)
    with database_of(config) as database:
        made = decided_by(database, COMMAND, CONFIG)
    write_file(file, write_list(made, identity, made=int(time.time())))
    facts = {"output": str(file), "signer": identity.peer_id, **_counted(made)}
    text = (
        f"written to {file}: {_counts(made)}\non another node: sapo-node peers import {file} --from {identity.peer_id}"
    )
    say_json(facts) if json_output else say(text)


@peers.command("import")
@click.argument("file", type=PATH)
@click.option(
    "--from", "signer", required=True, metavar="PEER", help="The whole peer id of the node that exported FILE."
)
@configured
@as_json
def import_from(config: Config, *, file: Path, signer: str, json_output: bool) -> None:
    """Follow the decisions that the node PEER exported to FILE. They replace those of its earlier list.

    A running node follows within a second. A peer that the newer list no longer names has the state that it earned. An
    empty list takes everything back. `import` refuses a list that another key signed, one older than the last, and
    one of this node itself.
    """
    listed = read_list(read_bounded(file, MAX_BYTES, "list of peers"), str(file))
    if listed.signer != signer:
        raise LocalError(
            f"{file} is signed by {listed.signer}, not by {signer}; give the list of the node that you name"
        )
    with writable_database(config) as (database, own):
        import_list(database, listed, own=own)
    facts = {"signer": signer, "made": listed.made, **_counted(listed.decisions)}
    text = f"the node follows the list of {signer}, made {explain.moment(listed.made)}: {_counts(listed.decisions)}"
    say_json(facts) if json_output else say(text)


def _counted(made: tuple[Decision, ...] | list[Decision]) -> dict[str, int]:
    banned = sum(each.state is PeerState.BANNED for each in made)
    return {"trusted": len(made) - banned, "banned": banned}


def _counts(made: tuple[Decision, ...] | list[Decision]) -> str:
    return ", ".join(f"{count} {state}" for state, count in _counted(made).items())
