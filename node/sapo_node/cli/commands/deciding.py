"""Decide about a peer: `trust`, `untrust`, `ban`, `unban`. A running node follows within a second."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from sapo_node.app.config import Config
from sapo_node.app.state import SCHEMA
from sapo_node.cli.commands.options import as_json, configured, folder_of
from sapo_node.cli.terminal import say, say_json
from sapo_node.observability import explain
from sapo_node.storage.database import Database
from sapo_node.storage.files import for_owner_alone
from sapo_node.trust.constants import PeerState
from sapo_node.trust.decisions import COMMAND, CONFIG, Decision, decide, decided_by, decision_of, pardon, take_back
from sapo_node.trust.ledger import account_of, has_equivocated
from sapo_node.trust.peer_list import MAX_WHY
from sapo_protocol import LocalError, load_manifest, public_key_of
from sapo_protocol.printable import printable

_WHY = click.option(
    "--why",
    metavar="TEXT",
    help="Your own words, which `sapo-node peers` shows.  [default: those of the same decision before]",
)


@contextmanager
def writable_database(config: Config) -> Iterator[tuple[Database, str]]:
    """The database of a node that may be running, and the node's own peer id. Raises LocalError if there is none."""
    folder = folder_of(config)
    with for_owner_alone(), closing(Database(folder.database, SCHEMA)) as database:
        yield database, folder.path.name


@click.command()
@click.argument("peer")
@configured
@_WHY
@as_json
def trust(config: Config, *, peer: str, why: str | None, json_output: bool) -> None:
    """Make PEER a friend, until `untrust`. A friend is healthy, whatever it earns.

    A running node follows within a second, and the decision holds over restarts. The beginning or the end of a known
    peer id is enough. The key `trusted` of the configuration does the same while the configuration names the peer.

    \b
    sapo-node trust 12D3KooWLiktss5vFLMbR6V7q8AJfc6xKu6uW6P3LxkrQtXPUPaR --why "our node in Lyon"
    """  # noqa: D301 - click reads the backspace
    with writable_database(config) as (database, own):
        named = _named(database, peer, own)
        if has_equivocated(database, named):
            raise LocalError(f"{named} signed two contents for one round, and stays banned whatever you trust")
        other = decision_of(database, named, besides=COMMAND)
        if other and other.state is PeerState.BANNED:
            raise LocalError(f"{named} is banned {_by(other)}")
        _decide(database, named, PeerState.HEALTHY, why)
        _report(database, config, named, json_output=json_output)


@click.command()
@click.argument("peer")
@configured
@as_json
def untrust(config: Config, *, peer: str, json_output: bool) -> None:
    """Take back `sapo-node trust`. What PEER earned by itself counts again."""
    with writable_database(config) as (database, own):
        named = _named(database, peer, own)
        decision = decision_of(database, named)
        if decision is None or decision.state is not PeerState.HEALTHY:
            raise LocalError(f"{named} is not trusted by a decision of yours; `sapo-node peers` lists the peers")
        if not take_back(database, named, COMMAND):
            raise LocalError(f"{named} is trusted {_by(decision)}")
        _report(database, config, named, json_output=json_output)


@click.command()
@click.argument("peer")
@configured
@_WHY
@as_json
def ban(config: Config, *, peer: str, why: str | None, json_output: bool) -> None:
    """Take nothing from PEER, whatever it earned, until `unban`.

    A running node ends its connection with PEER within a second, and drops what waits of it. The decision holds over
    restarts, and stands above a `trusted` that names the peer. The beginning or the end of a known peer id is enough.
    """
    with writable_database(config) as (database, own):
        named = _named(database, peer, own)
        _decide(database, named, PeerState.BANNED, why)
        _report(database, config, named, json_output=json_output)


@click.command()
@click.argument("peer")
@configured
@as_json
def unban(config: Config, *, peer: str, json_output: bool) -> None:
    """Take back `sapo-node ban`, and end a ban for offences now.

    After a ban for offences PEER is on probation, as if the time of the ban had passed. A ban by the configuration or
    by a list stays. A ban never ends if PEER signed two contents for one round.
    """
    with writable_database(config) as (database, own):
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
                raise LocalError(f"{named} is banned {_by(decision)}")
            take_back(database, named, COMMAND)
            pardon(database, named)
        _report(database, config, named, json_output=json_output)


def _named(database: Database, peer: str, own: str) -> str:
    """The peer id that is meant: a whole one, or a part of a known one. Raises LocalError for this node's own."""
    try:
        public_key_of(peer)
    except LocalError:
        peer = explain.peer_named(database, peer)
    if peer == own:
        raise LocalError(f"{peer} is this node itself; give the id of a peer")
    return peer


def _by(decision: Decision) -> str:
    """The source of a decision other than a command, and how to take it back there."""
    if decision.source == CONFIG:
        key = "banned" if decision.state is PeerState.BANNED else "trusted"
        return f"by the configuration: remove it from `{key}` there, and start the node again"
    return f"by the list of {decision.source}: take it out there, and import the list again"


def _decide(database: Database, peer: str, state: PeerState, why: str | None) -> None:
    earlier = next((each for each in decided_by(database, COMMAND) if (each.peer, each.state) == (peer, state)), None)
    words = printable(why) if why is not None else earlier.why if earlier else ""
    if len(words) > MAX_WHY:
        raise LocalError(f"--why has {len(words)} characters; give at most {MAX_WHY}")
    decide(database, Decision(peer, state, COMMAND, time.time(), words))


def _report(database: Database, config: Config, peer: str, *, json_output: bool) -> None:
    told = explain.known_peer(database, peer, load_manifest(config.swarm))
    say_json(told.as_dict()) if json_output else say("\n".join(told.text.splitlines()[:3]))
