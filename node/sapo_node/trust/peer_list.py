"""An operator's decisions about peers as a signed file, so that many nodes follow the list of one.

The file is JSON, for people to read. The signature covers the deterministic CBOR of [DOMAIN, signer's key, time, rows].
The other content that a node key signs is an array that begins with another text, so no signature is valid for both.

    data = write_list(decisions, identity, made=time)
    listed = read_list(data, "friends.json")       # raises LocalError unless the named key signed it
    import_list(database, listed, own=peer_id)
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.trust.constants import PeerState
from sapo_node.trust.decisions import Decision, replace_all
from sapo_protocol import LocalError, public_key_of
from sapo_protocol.cbor import encode
from sapo_protocol.printable import printable
from sapo_protocol.signature import verify_signature

DOMAIN = "sapo-node/peers/1"
MAX_BYTES = 8 * 2**20
MAX_PEERS = 10_000
MAX_WHY = 200
"""Characters of the operator's words about one peer."""

_KEYS = {"format", "signer", "made", "peers", "signature"}
_STATES = (PeerState.HEALTHY, PeerState.BANNED)


@dataclass(frozen=True, slots=True)
class PeerList:
    """The content of a list. Made only by `read_list`: the signature of `signer` holds."""

    signer: str
    made: int
    """Unix time in seconds."""
    decisions: tuple[Decision, ...]


def write_list(decisions: Sequence[Decision], identity: Identity, *, made: int) -> bytes:
    """The bytes of a list. Raises LocalError for more than MAX_PEERS peers."""
    if len(decisions) > MAX_PEERS:
        raise LocalError(f"there are {len(decisions)} decisions, and a list holds at most {MAX_PEERS} peers")
    rows = [[each.peer, each.state.value, int(each.since), each.why] for each in decisions]
    signature = identity.sign(_signed(identity.public_key, made, rows))
    peers = [dict(zip(("peer", "state", "since", "why"), row, strict=True)) for row in rows]
    content = {"format": DOMAIN, "signer": identity.peer_id, "made": made, "peers": peers}
    return json.dumps({**content, "signature": signature.hex()}, indent=1).encode() + b"\n"


def read_list(data: bytes, name: str) -> PeerList:
    """The list in a file called `name`. Raises LocalError if it is no list, or if the signature does not hold."""
    try:
        signer, made, rows, signature = _fields(json.loads(data))
        signed = _signed(public_key_of(signer), made, rows)
    except (ValueError, TypeError, KeyError, RecursionError, LocalError) as error:
        raise LocalError(f"{name} is not a list that `sapo-node peers export` wrote") from error
    if not verify_signature(public_key_of(signer), signed, signature):
        raise LocalError(f"{name} is not what {signer} signed: it was changed; get the file from its operator again")
    made_of = (Decision(peer, PeerState(state), signer, float(since), why) for peer, state, since, why in rows)
    return PeerList(signer, made, tuple(made_of))


def import_list(database: Database, listed: PeerList, *, own: str) -> None:
    """Follow a list in place of the earlier one of its signer. What it says about the node `own` is left out.

    Raises LocalError for a list that is older than the one of this signer that was imported last, and for a list that
    `own` signed: as a second source it would hold on to what the operator takes back here.
    """
    if listed.signer == own:
        raise LocalError(
            "this list is of this node itself, which follows its decisions already: import it on your other nodes"
        )
    with database.transaction():
        row = database.row("SELECT made FROM lists WHERE signer = ?", listed.signer)
        if row and row[0] > listed.made:
            raise LocalError(
                f"this list is older than the list of {listed.signer} that was imported before; export it again there"
            )
        database.execute("INSERT OR REPLACE INTO lists VALUES (?, ?)", listed.signer, listed.made)
        replace_all(database, listed.signer, [each for each in listed.decisions if each.peer != own])


def _signed(signer: bytes, made: int, rows: Sequence[Sequence[Any]]) -> bytes:
    return encode([DOMAIN, signer, made, rows])


def _fields(table: Any) -> tuple[str, int, list[list[Any]], bytes]:
    """Signer, time, rows and signature. Raises ValueError, KeyError, TypeError or LocalError if one is missing."""
    if not isinstance(table, dict) or table.keys() != _KEYS or table["format"] != DOMAIN:
        raise ValueError
    if not isinstance(table["peers"], list) or len(table["peers"]) > MAX_PEERS:
        raise ValueError
    rows = [_row(each) for each in table["peers"]]
    return _peer(table["signer"]), _time(table["made"]), rows, bytes.fromhex(table["signature"])


def _row(entry: dict[str, Any]) -> list[Any]:
    """The signed form of one entry. Raises ValueError, KeyError, TypeError or LocalError for any other."""
    peer, state, since, why = (entry[name] for name in ("peer", "state", "since", "why"))
    if len(entry) != 4 or state not in _STATES or not isinstance(why, str) or len(why) > MAX_WHY:
        raise ValueError
    if why != printable(why):
        raise ValueError
    return [_peer(peer), state, _time(since), why]


def _peer(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    public_key_of(value)
    return value


def _time(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**40:
        raise ValueError
    return value
