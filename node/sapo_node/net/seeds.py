"""Bootstrap peers that a name stands for: `/dnsaddr/<name>` (https://github.com/multiformats/multiaddr, DNSADDR).

The TXT records of `_dnsaddr.<name>` are `dnsaddr=<multiaddress>`. Each is the full address of a peer, or another
`/dnsaddr` name. With `/p2p/<peer id>` at its end, `/dnsaddr/<name>` stands for this peer alone. A record proves
nothing: a peer that answers a dial must prove its id in the handshake.
"""

from collections.abc import Callable

import trio
from dns import asyncresolver
from dns.exception import DNSException

from sapo_node.net.addresses import AddressError, is_dialable, parse_dial, seed_of
from sapo_node.net.interface import BootstrapReached, BootstrapUnreachable, Notify

PEERS = 32  # of one name
NAMES = 8  # that are looked up for it
LOOKUP_SECONDS = 10.0  # for all of them
AGAIN_SECONDS = 300.0  # from one look at the records to the next
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds, after a look that found nobody

_PREFIX = "dnsaddr="


async def peers_of(seed: tuple[str, str]) -> list[tuple[str, str]]:
    """The peers that a name stands for: (peer id, address). Raises OSError if there are none."""
    names, found = [seed], dict[tuple[str, str], None]()
    why = f"no record of _dnsaddr.{seed[0]} names a peer that can be dialled"
    for name, only in names:  # which grows
        try:
            records = await _records(name)
        except OSError as error:
            why = str(error)
            continue
        for record in records:
            if named := seed_of(record):
                further = named[0], named[1] or only
                if only in {"", further[1]} and further not in names and len(names) < NAMES:
                    names.append(further)
                continue
            try:
                peer_id, address = parse_dial(record)
            except AddressError:
                continue
            if is_dialable(address) and only in {"", peer_id}:
                found[peer_id, address] = None
    if not found:
        raise OSError(why)
    return list(found)[:PEERS]


async def _records(name: str) -> list[str]:
    """The addresses in the TXT records of a name."""
    try:
        answer = await asyncresolver.resolve(f"_dnsaddr.{name}", "TXT", lifetime=LOOKUP_SECONDS)
    except DNSException as error:
        raise OSError(str(error) or type(error).__name__) from error
    texts = (b"".join(record.strings).decode("ascii", "replace") for record in answer)
    return [text.removeprefix(_PREFIX) for text in texts if text.startswith(_PREFIX)]


async def seek(text: str, want: Callable[[str, list[str]], None], notify: Notify) -> None:
    """Call `want(peer id, [address])` for the peers of a /dnsaddr address, now and again, until cancelled."""
    seed = seed_of(text)
    assert seed is not None
    pause, reported = FIRST_PAUSE, False
    while True:
        try:
            with trio.fail_after(LOOKUP_SECONDS):
                found = await peers_of(seed)
        except (OSError, trio.TooSlowError) as error:
            if not reported:
                notify(BootstrapUnreachable(text, str(error) or "no answer in time"))
            reported = True
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            continue
        if reported:
            notify(BootstrapReached(text))
        pause, reported = FIRST_PAUSE, False
        for peer_id, address in found:
            want(peer_id, [address])
        await trio.sleep(AGAIN_SECONDS)
