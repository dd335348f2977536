"""Known faults of py-libp2p 0.8.1: each attack meets a node as the library ships it, and one of ours.

The question is the same for both: is a good peer served while the attack goes on, and after it? Served means that a
peer that connects, says something and listens hears the node's answer. Each stock node has a process of its own, so
that its death is seen and not shared; ours is one node that all attacks meet in turn.
"""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from Crypto.Util.asn1 import DerSequence
from libp2p.crypto.pb import crypto_pb2
from libp2p.peer.id import ID
from libp2p.peer.pb import envelope_pb2
from libp2p.pubsub.pb import rpc_pb2
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from multiaddr import Multiaddr

from sapo_node.net.host import TrackedTcp
from sapo_node.net.yamux import BoundedMuxer, BoundedYamux
from stock_libp2p import stock_host

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Probe, Start, Until

TOPIC = "/sapo/2/" + "ab" * 32 + "/rollouts/0"
SERVED_SECONDS = 4.0  # a node that is well takes less than one
FORGET_SECONDS = 2.5  # both nodes forget after one second; the library's table is swept once a second
BAD_MESSAGES = 40  # twice what a ban takes

names = itertools.count(10)
"""Numbers that give each peer a key of its own."""


@dataclass
class Victim:
    """A node of either kind in its own process."""

    process: subprocess.Popen[str]
    address: str

    @property
    def died(self) -> bool:
        return self.process.poll() is not None


@asynccontextmanager
async def garbage(attacker: "Attack", victim: Victim) -> AsyncIterator[None]:
    """One RPC that is no protobuf: the DecodeError passes every handler and ends the swarm."""
    async with attacker(victim.address, next(names)) as mallory:
        await mallory.send(b"\xff" * 100)
        yield


@asynccontextmanager
async def undecodable_key(attacker: "Attack", victim: Victim) -> AsyncIterator[None]:
    """A message whose author's key must come with it, and is no key: the DecodeError ends the gossip service."""
    async with attacker(victim.address, next(names)) as mallory:
        message = mallory.message(b"m")
        message.from_id = bytes([0x12, 0x20]) + bytes(32)
        message.key = b"\xff" * 40
        await mallory.send_rpc(mallory.rpc(message))
        yield


@asynccontextmanager
async def raising_validator(attacker: "Attack", victim: Victim) -> AsyncIterator[None]:
    """A message that meets a fault of the node's own validator: what a synchronous one raises ends the service."""
    async with attacker(victim.address, next(names)) as mallory:
        await mallory.send_rpc(mallory.rpc(mallory.message(b"fault")))
        yield


@asynccontextmanager
async def many_in_one(attacker: "Attack", victim: Victim) -> AsyncIterator[None]:
    """11,900 empty messages in one RPC of 1 MB: the library starts a task for each, and is busy for tens of seconds."""
    flood = rpc_pb2.RPC(publish=[rpc_pb2.Message(topicIDs=[TOPIC])] * 11_900)
    async with attacker(victim.address, next(names)) as mallory, trio.open_nursery() as nursery:
        nursery.start_soon(quietly, mallory.send_rpc, flood)
        await trio.sleep(1)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def half_open(_attacker: "Attack", victim: Victim) -> AsyncIterator[None]:
    """500 connections from one address that never finish a handshake: silent, noisy, or stopped after a header."""
    port = int(victim.address.split("/")[4])
    streams = []
    for number in range(500):
        stream = await trio.open_tcp_stream("127.0.0.1", port, local_address="127.9.0.9")
        streams.append(stream)
        with trio.move_on_after(1):
            await quietly(stream.send_all, (b"", os.urandom(64), b"\x13/multistream/1.0.0\n")[number % 3])
    yield
    for stream in streams:
        await trio.aclose_forcefully(stream)


def costly_key() -> bytes:
    """An RSA key of 7 KB that takes 2 s of CPU to read: it is a private key, and its 11,213-bit prime is tested."""
    p, q, e = 2**11_213 - 1, 65_539, 65_537
    d = pow(e, -1, (p - 1) * (q - 1))
    numbers = (0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    return bytes(DerSequence(numbers).encode())


def costly_public_key() -> bytes:
    """The same as a message holds it."""
    key = crypto_pb2.PublicKey(key_type=crypto_pb2.KeyType.RSA, data=costly_key())
    return bytes(key.SerializeToString())


@asynccontextmanager
async def costly_author(attacker: "Attack", victim: Victim) -> AsyncIterator[None]:
    """Messages whose author has a costly key. The library reads the key before it compares it with the author's id."""
    async with attacker(victim.address, next(names)) as mallory:
        message = mallory.message(b"m")
        message.from_id = bytes([0x12, 0x20]) + bytes(32)
        message.key = costly_public_key()
        await mallory.send_rpc(mallory.rpc(*[message] * 10))
        yield


@asynccontextmanager
async def costly_records(attacker: "Attack", victim: Victim) -> AsyncIterator[None]:
    """Signed peer records with a costly key, each of them new."""
    async with attacker(victim.address, next(names)) as mallory, trio.open_nursery() as nursery:
        for number in range(10):
            record = envelope_pb2.Envelope(payload=b"%d" % number, signature=bytes(64))
            record.public_key.Type, record.public_key.Data = crypto_pb2.KeyType.RSA, costly_key()
            nursery.start_soon(quietly, mallory.send_rpc, rpc_pb2.RPC(senderRecord=record.SerializeToString()))
        await trio.sleep(1)
        yield
        nursery.cancel_scope.cancel()


@dataclass
class CostlyIdentity:
    """A private key in a Noise handshake, whose public key is costly to read."""

    own: Any

    def sign(self, data: bytes) -> bytes:
        return bytes(self.own.sign(data))

    def get_public_key(self) -> "CostlyIdentity":
        return self

    def serialize(self) -> bytes:
        return costly_public_key()


@asynccontextmanager
async def costly_handshakes(_attacker: "Attack", victim: Victim) -> AsyncIterator[None]:
    """Ten handshakes with a costly key, which is read before anything is known of the peer."""
    host = stock_host(bytes([next(names)]) * 32)
    swarm = host.get_network()
    noise = swarm.upgrader.security_multistream.transports[NOISE]
    noise.libp2p_privkey = CostlyIdentity(noise.libp2p_privkey)
    target = ID.from_string(victim.address.rpartition("/")[2])
    async with host.run(listen_addrs=[]), trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(quietly, swarm.dial_addr, Multiaddr(victim.address), target)
        await trio.sleep(1)
        yield
        nursery.cancel_scope.cancel()


async def quietly(call: Callable[..., Awaitable[object]], *arguments: object) -> None:
    try:
        await call(*arguments)
    except Exception:  # noqa: BLE001 - the victim hung up, which is its right
        return


Fault = Callable[["Attack", Victim], AbstractAsyncContextManager[None]]
DEADLY: list[Fault] = [garbage, undecodable_key, raising_validator]
STARVING: list[Fault] = [many_in_one, half_open, costly_author, costly_records, costly_handshakes]


def launch(kind: str, folder: Path) -> Victim:
    script = Path(__file__).with_name("answering_process.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, str(script), kind, str(next(names)), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    return Victim(process, process.stdout.readline().strip())


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[Victim]:
    victim = launch("stock", tmp_path)
    yield victim
    victim.process.kill()
    victim.process.communicate()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    victim = launch("ours", tmp_path_factory.mktemp("ours"))
    yield victim
    victim.process.kill()
    victim.process.communicate()


async def answered(peer: "Probe", within: float) -> bool:
    """Whether the node answers what this peer says, within so many seconds."""
    with trio.move_on_after(within):
        while True:
            word = b"%d says %d" % (peer.number, next(names))
            await peer.publish(word)
            with trio.move_on_after(0.5):
                while b"took " + word not in peer.heard:  # noqa: ASYNC110 - an answer has no event of its own
                    await trio.sleep(0.02)
                return True
    return False


async def serves_an_untrusted_peer(victim: Victim, start: "Start", within: float = SERVED_SECONDS) -> bool:
    peer = await start(next(names), bootstrap=(victim.address,))
    served = await answered(peer, within)
    await peer.stop()
    return served


@pytest.mark.slow
@pytest.mark.parametrize("fault", DEADLY)
async def test_a_stock_node_dies(fault: Fault, stock: Victim, attacker: "Attack", until: "Until") -> None:
    async with fault(attacker, stock):
        await until(lambda: stock.died, within=20)
    assert stock.process.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", STARVING)
async def test_a_stock_node_lives_and_serves_no_newcomer(
    fault: Fault, stock: Victim, start: "Start", attacker: "Attack"
) -> None:
    assert await serves_an_untrusted_peer(stock, start)
    async with fault(attacker, stock):
        assert not await serves_an_untrusted_peer(stock, start)
    assert not stock.died


@pytest.mark.parametrize("fault", [*DEADLY, *STARVING])
@pytest.mark.slow
async def test_our_node_serves_old_and_new_peers_throughout(
    fault: Fault, ours: Victim, start: "Start", attacker: "Attack"
) -> None:
    old = await start(next(names), bootstrap=(ours.address,))
    assert await answered(old, SERVED_SECONDS)
    async with fault(attacker, ours):
        assert await answered(old, SERVED_SECONDS)
        assert await serves_an_untrusted_peer(ours, start)
    assert await answered(old, SERVED_SECONDS)
    assert not ours.died


async def what_no_validator_saw(victim: Victim, good: "Probe", attacker: "Attack", until: "Until") -> bool:
    """Whether a message that is refused gets through under the author and number of one that was taken.

    The library knows a message by author and number, and keeps its verdict (300 s) longer than the memory of having
    seen it (120 s): in between, other data under the same number is delivered and forwarded without a question.
    Both nodes are told to forget what they saw after one second, which changes no other part of it.
    """
    async with attacker(victim.address, next(names)) as mallory:
        await mallory.send_rpc(mallory.rpc(mallory.message(b"good", seqno=7)))
        await until(lambda: b"took good" in good.heard)
        await trio.sleep(FORGET_SECONDS)
        await mallory.send_rpc(mallory.rpc(mallory.message(b"bad", seqno=7)))
        await mallory.send_rpc(mallory.rpc(mallory.message(b"last", seqno=8)))
        await until(lambda: b"took last" in good.heard)
        with trio.move_on_after(1):
            await until(lambda: b"took bad" in good.heard)
    return b"took bad" in good.heard


@pytest.mark.slow
async def test_a_stock_node_takes_what_no_validator_saw(
    stock: Victim, start: "Start", attacker: "Attack", until: "Until"
) -> None:
    good = await start(next(names), bootstrap=(stock.address,))
    assert await answered(good, SERVED_SECONDS)
    assert await what_no_validator_saw(stock, good, attacker, until)


@pytest.mark.slow
async def test_our_node_takes_nothing_that_no_validator_saw(
    ours: Victim, start: "Start", attacker: "Attack", until: "Until"
) -> None:
    good = await start(next(names), bootstrap=(ours.address,))
    assert await answered(good, SERVED_SECONDS)
    assert not await what_no_validator_saw(ours, good, attacker, until)


async def heard_again_after_reconnecting(victim: Victim, good: "Probe", attacker: "Attack") -> bool:
    """Whether a peer that was no longer heard is heard again because it connects anew, with the same key (`reconnect`).

    The library deletes the score of a peer that leaves, if it had a stream to it.
    """
    number = next(names)
    async with attacker(victim.address, number) as mallory:
        bad = [mallory.message(b"bad %d" % each, seqno=each) for each in range(BAD_MESSAGES)]
        await mallory.send_rpc(mallory.rpc(*bad))
        await trio.sleep(0.5)
        await quietly(mallory.send_rpc, mallory.rpc(mallory.message(b"before", seqno=100)))
        assert await answered(good, SERVED_SECONDS)
        assert b"took before" not in good.heard

    async def come_back() -> None:
        async with attacker(victim.address, number) as mallory:
            await mallory.send_rpc(mallory.rpc(mallory.message(b"after", seqno=101)))
            await trio.sleep(1)

    await quietly(come_back)
    assert await answered(good, SERVED_SECONDS)
    return b"took after" in good.heard


@pytest.mark.slow
async def test_a_stock_node_forgets_a_score_when_the_peer_reconnects(
    stock: Victim, start: "Start", attacker: "Attack"
) -> None:
    good = await start(next(names), bootstrap=(stock.address,))
    assert await answered(good, SERVED_SECONDS)
    assert await heard_again_after_reconnecting(stock, good, attacker)


@pytest.mark.slow
async def test_our_node_does_not_hear_a_banned_peer_that_reconnects(
    ours: Victim, start: "Start", attacker: "Attack"
) -> None:
    """The ledger that bans it is on disk, so that a restart of the node changes nothing either."""
    good = await start(next(names), bootstrap=(ours.address,))
    assert await answered(good, SERVED_SECONDS)
    assert not await heard_again_after_reconnecting(ours, good, attacker)


async def test_nothing_is_kept_of_a_peer_that_left(pair: "tuple[Probe, Probe]", until: "Until") -> None:
    node, peer = pair
    identity = ID.from_string(peer.network.peer_id)
    host = node.session.host
    kept = host.get_peerstore().peer_data_map
    assert identity in kept
    await peer.stop()
    await until(lambda: not node.network.peers())
    assert identity not in kept
    assert identity not in host.get_network().auto_connector._recent_disconnects


@pytest.mark.parametrize("ours", [TrackedTcp, BoundedMuxer, BoundedYamux])
def test_no_private_method_of_the_library_is_overridden(ours: type) -> None:
    """The library may rename one in any release."""
    private = {name for name, made in vars(ours).items() if callable(made) and re.match("_[^_]", name)}
    assert private & {name for base in ours.__mro__[1:] for name in vars(base)} == set()
