"""Show the peers of a node, and decide about them: `peers`, `peers trust`, `untrust`, `ban`, `unban`.

A running node follows a decision within a second.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from sapo_node.app.config import Config
from sapo_node.app.state import SCHEMA
from sapo_node.cli.commands.group import Group
from sapo_node.cli.commands.options import (
    NODE,
    PATH,
    SectionedCommand,
    as_json,
    database_of,
    folder_of,
    option,
    settings,
    view_of,
    write_file,
)
from sapo_node.cli.commands.wire import show_proof
from sapo_node.cli.tables import decision_table, tier_line
from sapo_node.cli.terminal import Terminal, say, say_json
from sapo_node.observability import explain
from sapo_node.storage.database import Database
from sapo_node.storage.files import for_owner_alone
from sapo_node.trust.constants import PeerState
from sapo_node.trust.decisions import COMMAND, Decision, decide, decided_by, decision_of, pardon, take_back
from sapo_node.trust.ledger import account_of, has_equivocated
from sapo_protocol import LocalError, load_manifest, public_key_of
from sapo_protocol.printable import printable

MAX_WHY = 200
"""Characters of the operator's words about one peer."""
_WHY = option(
    "--why", metavar="TEXT", help="Your own words, which `sapo-node peers` shows. Without it those of before stay."
)


@click.group(cls=Group, default="show", short_help="the peers of a node")
def peers() -> None:
    """Show the peers of a node, and trust or ban them.

    `show` may be left out. `sapo-node peers show --help` lists its options. The beginning or the end of a known peer id
    is enough for PEER.

    A node trusts and bans by what it verified itself. A decision of its operator stands above that. A running node
    follows it within a second, and it holds over restarts.

    \b
    sapo-node peers                            all peers; --json for scripts
    sapo-node peers ACgPL7x5                   one peer, by the end of its id
    sapo-node peers ACgPL7x5 --evidence        why it is banned for good
    sapo-node peers ban ACgPL7x5 --why spam
    """  # noqa: D301 - click reads the backspace


@peers.command(cls=SectionedCommand)
@click.argument("peer", required=False)
@settings(*NODE)
@option("--evidence", is_flag=True, help="Show the evidence for which PEER was banned for good.")
@option("--output", type=PATH, metavar="FILE", help="Write the evidence to FILE.")
@as_json
def show(config: Config, *, peer: str | None, evidence: bool, output: Path | None, json_output: bool) -> None:
    """List the peers of a node. With PEER, explain one.

    For each peer: its state, who decided it, why, since when and until when. The evidence is two contents that PEER
    signed for one round. Anybody can check FILE: `sapo-node verify --evidence FILE`.
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


@peers.command(cls=SectionedCommand)
@click.argument("peer")
@settings(*NODE)
@_WHY
@as_json
def trust(config: Config, *, peer: str, why: str | None, json_output: bool) -> None:
    """Make PEER a friend, until `untrust`. A friend is healthy, whatever it earns.

    The key `trusted` of the configuration does the same while the configuration names the peer.

    \b
    sapo-node peers trust 12D3KooWLiktss5vFLMbR6V7q8AJfc6xKu6uW6P3LxkrQtXPUPaR --why "our node in Lyon"
    """  # noqa: D301 - click reads the backspace
    with _writable_database(config) as (database, own):
        named = _named(database, peer, own)
        if has_equivocated(database, named):
            raise LocalError(f"{named} signed two contents for one round, and stays banned whatever you trust")
        other = decision_of(database, named, besides=COMMAND)
        if other and other.state is PeerState.BANNED:
            raise LocalError(f"{named} is banned {_by_configuration(other)}")
        _decide(database, named, PeerState.HEALTHY, why)
        _report(database, config, named, json_output=json_output)


@peers.command(cls=SectionedCommand)
@click.argument("peer")
@settings(*NODE)
@as_json
def untrust(config: Config, *, peer: str, json_output: bool) -> None:
    """Take back `sapo-node peers trust`. The state that PEER earned itself counts again."""
    with _writable_database(config) as (database, own):
        named = _named(database, peer, own)
        decision = decision_of(database, named)
        if decision is None or decision.state is not PeerState.HEALTHY:
            raise LocalError(f"{named} is not trusted by a decision of yours; `sapo-node peers` lists the peers")
        if not take_back(database, named, COMMAND):
            raise LocalError(f"{named} is trusted {_by_configuration(decision)}")
        _report(database, config, named, json_output=json_output)


@peers.command(cls=SectionedCommand)
@click.argument("peer")
@settings(*NODE)
@_WHY
@as_json
def ban(config: Config, *, peer: str, why: str | None, json_output: bool) -> None:
    """Take nothing from PEER, whatever it earned, until `unban`.

    A running node closes its connection with PEER, and drops the pending messages of PEER. The ban stands above a
    `trusted` that names the peer.
    """
    with _writable_database(config) as (database, own):
        named = _named(database, peer, own)
        _decide(database, named, PeerState.BANNED, why)
        _report(database, config, named, json_output=json_output)


@peers.command(cls=SectionedCommand)
@click.argument("peer")
@settings(*NODE)
@as_json
def unban(config: Config, *, peer: str, json_output: bool) -> None:
    """Take back `sapo-node peers ban`, and end a ban for offences now.

    After a ban for offences PEER is on probation, as if the time of the ban had passed. A ban by the configuration
    stays. A ban never ends if PEER signed two contents for one round.
    """
    with _writable_database(config) as (database, own):
        named = _named(database, peer, own)
        if has_equivocated(database, named):
            raise LocalError(
                f"{named} signed two contents for one round, and that ban never ends; `sapo-node peers {named} "
                f"--evidence` shows both"
            )
        if account_of(database, named).state is not PeerState.BANNED:
            raise LocalError(f"{named} is not banned; `sapo-node peers` lists the peers and their states")
        with database.transaction():
            decision = decision_of(database, named)
            if decision and decision.source != COMMAND:
                raise LocalError(f"{named} is banned {_by_configuration(decision)}")
            take_back(database, named, COMMAND)
            pardon(database, named)
        _report(database, config, named, json_output=json_output)


@contextmanager
def _writable_database(config: Config) -> Iterator[tuple[Database, str]]:
    """Open the database of a node that may be running. Yield it and the node's own peer id."""
    folder = folder_of(config)
    with for_owner_alone(), closing(Database(folder.database, SCHEMA)) as database:
        yield database, folder.path.name


def _named(database: Database, peer: str, own: str) -> str:
    """Return the whole peer id of a whole one, or of a part of a known one. Raises LocalError for this node's own."""
    try:
        public_key_of(peer)
    except LocalError:
        peer = explain.peer_named(database, peer)
    if peer == own:
        raise LocalError(f"{peer} is this node itself; give the id of a peer")
    return peer


def _by_configuration(decision: Decision) -> str:
    key = "banned" if decision.state is PeerState.BANNED else "trusted"
    return f"by the configuration: remove it from `{key}` there, and start the node again"


def _decide(database: Database, peer: str, state: PeerState, why: str | None) -> None:
    earlier = next((each for each in decided_by(database, COMMAND) if (each.peer, each.state) == (peer, state)), None)
    words = printable(why) if why is not None else earlier.why if earlier else ""
    if len(words) > MAX_WHY:
        raise LocalError(f"--why has {len(words)} characters; give at most {MAX_WHY}")
    decide(database, Decision(peer, state, COMMAND, time.time(), words))


def _report(database: Database, config: Config, peer: str, *, json_output: bool) -> None:
    told = explain.known_peer(database, peer, load_manifest(config.swarm))
    say_json(told.as_dict()) if json_output else say("\n".join(told.text.splitlines()[:3]))
