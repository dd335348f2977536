"""Asks many nodes how they are, by the addresses of their pages. Read-only; what a node answers is foreign text.

    asked = await ask_all(["http://192.0.2.7:8080/?token=..."])     {address: Summary or the reason as text}

It asks AT_ONCE nodes at a time. Each node has SECONDS and MAX_REPLY_BYTES. A token goes into a header, to the host of
its address alone: no proxy sees it, and no redirect is followed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

import httpx
import trio

from sapo_node.groups.codec import from_json
from sapo_node.observability.overview import Overview
from sapo_protocol import LocalError
from sapo_protocol.printable import excerpt, printable

SECONDS = 10.0
MAX_REPLY_BYTES = 65_536
AT_ONCE = 500
"""Each takes a file descriptor, of which a process often has 1,024."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One node in one line."""

    peer_id: str
    swarm: str
    doing: str
    rounds: int
    """Step of the policy; 0 for a node that does not train."""
    idle: float | None
    """Seconds since the last round; None before the first."""
    reward: float | None
    """Mean of the last rounds."""
    held_out: float | None
    connected: int
    external: float | None
    """Share of the trained tokens that came from others."""
    notice: str
    """The first notice: the newest of those that need a person, else the newest."""


def summary(view: Overview, *, doing: str, now: float) -> Summary:
    """The summary of a node at a Unix time."""
    session, rounds, tokens = view.session, view.rounds, view.own_tokens + view.other_tokens
    return Summary(
        session.get("peer_id", ""),
        session.get("swarm", ""),
        doing,
        rounds[-1]["step"] if rounds else 0,
        max(0.0, now - rounds[-1].get("at", now)) if rounds else None,
        sum(each["reward"] for each in rounds) / len(rounds) if rounds else None,
        view.evaluations[-1]["pass_at_1"] if view.evaluations else None,
        len(session.get("connected", ())),
        view.other_tokens / tokens if tokens else None,
        next((each["text"] for each in session.get("notices", ())), ""),
    )


async def ask_all(addresses: Sequence[str]) -> dict[str, Summary | str]:
    """Ask all: by address, the summary of the node, or why there is none.

    Raises LocalError if an address is no HTTP address.
    """
    urls = {address: _url(address) for address in addresses}
    answers: dict[str, Summary | str] = {}

    async def ask(address: str) -> None:
        try:
            async with places:
                answers[address] = await _ask(client, urls[address])
        except LocalError as failure:
            answers[address] = str(failure)

    places = trio.CapacityLimiter(AT_ONCE)
    # Its own limit would let nodes wait for a place while their SECONDS pass.
    limits = httpx.Limits(max_connections=None)
    client = httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=SECONDS, limits=limits)
    async with client, trio.open_nursery() as nursery:
        for address in urls:
            nursery.start_soon(ask, address)
    return {address: answers[address] for address in urls}


def place_of(address: str) -> str:
    """Host and port of an address, without its token."""
    return printable(_url(address).netloc.decode("ascii"))


def _url(address: str) -> httpx.URL:
    try:
        url = httpx.URL(address)
    except (ValueError, httpx.InvalidURL):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        shown = excerpt(address.partition("?")[0])  # without a token
        raise LocalError(f"{shown!r} is no address of a page; give one like http://192.0.2.7:8080/?token=TOKEN")
    return url


async def _ask(client: httpx.AsyncClient, url: httpx.URL) -> Summary:
    token = url.params.get("token")
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = b""
    try:
        with trio.fail_after(SECONDS):
            async with client.stream("GET", url.copy_with(path="/api/summary", query=None), headers=headers) as answer:
                async for piece in answer.aiter_raw():
                    data += piece
                    if len(data) > MAX_REPLY_BYTES:
                        raise LocalError(f"its answer is longer than {MAX_REPLY_BYTES:,} bytes; is it a node?")
    except trio.TooSlowError:
        raise LocalError(f"no answer within {SECONDS:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise LocalError(f"no answer: {printable(str(error)) or type(error).__name__}") from error
    if answer.status_code == 401:
        raise LocalError("refuses the token; give the address that the node printed")
    if answer.status_code != 200:
        raise LocalError(f"answers with status {answer.status_code}; is it a node of this version?")
    return _summary(data)


def _summary(data: bytes) -> Summary:
    """Facts that a later version adds are passed over."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise LocalError("its answer is not that of a node")
    names = {each.name for each in fields(Summary)}
    return from_json(Summary, {name: value for name, value in body.items() if name in names})
