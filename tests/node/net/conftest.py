"""Real nodes on loopback that note what they see, and an attacker who speaks raw libp2p to them."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.exceptions import ParseError
from libp2p.io.exceptions import IOException
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX
from libp2p.utils import encode_varint_prefixed
from libp2p.utils.varint import read_varint_prefixed_bytes
from multiaddr import Multiaddr
from nacl.signing import SigningKey

from sapo_node.gossip.verdict import Verdict
from sapo_node.net.host import Session
from sapo_node.net.interface import Channel, KnownPeer, NetworkNotice, Requests
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences, NetworkSettings
from sapo_protocol.keys import peer_id
from stock_libp2p import stock_host

if TYPE_CHECKING:
    from trio_typing import TaskStatus

SWARM = "ab" * 32
LIMIT = 900_000
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


def topic_of(network_id: str, shard: int = 0) -> str:
    return f"/sapo/2/{network_id}/rollouts/{shard}"


TOPIC = topic_of(SWARM)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


Until = Callable[..., Awaitable[None]]


async def wait_until(condition: Callable[[], object], within: float = 15.0) -> None:
    with trio.fail_after(within):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await trio.sleep(0.01)


@pytest.fixture
def until() -> Until:
    """`await until(condition, within=seconds)` waits for a condition and fails when it takes longer."""
    return wait_until


@dataclass
class Probe:
    """A real node that answers every message with one verdict and notes what it hears."""

    number: int
    verdict: Verdict = Verdict.ACCEPT
    network_id: str = SWARM
    bootstrap: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    known: tuple[KnownPeer, ...] = ()
    listen: str = LOOPBACK
    announce: tuple[str, ...] = ()
    discover: bool = False
    defences: NetworkDefences = NETWORK_DEFENDED
    fault: Exception | None = None
    requests: Requests | None = None
    shards: int = 1
    banned: set[str] = field(default_factory=set)
    heard: list[bytes] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    notices: list[NetworkNotice] = field(default_factory=list)
    life: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    network: Libp2pNetwork = field(init=False)

    def __post_init__(self) -> None:
        seed = bytes([self.number]) * 32
        settings = NetworkSettings(
            seed=seed,
            network_id=self.network_id,
            listen=(self.listen,),
            announce=self.announce,
            bootstrap=self.bootstrap,
            anchors=self.anchors,
            known=self.known,
            discover=self.discover,
            defences=self.defences,
        )
        channels = dict.fromkeys(self.topics, Channel(self.handle, LIMIT))
        channels[self.refusing] = Channel(self.refuse, LIMIT, everybodys=True)
        self.network = Libp2pNetwork(
            settings,
            peer_id(bytes(SigningKey(seed).verify_key)),
            channels,
            requests=self.requests,
            admit=lambda peer: peer not in self.banned,
            notify=self.notices.append,
        )

    async def run(self, *, task_status: "TaskStatus[None]") -> None:
        try:
            with self.life:
                await self.network.run(task_status=task_status)
        finally:
            self.ended.set()

    async def stop(self) -> None:
        """Cancel the node's `run` and wait until it has ended."""
        self.life.cancel()
        await self.ended.wait()

    async def publish(self, data: bytes, *, shard: int = 0) -> None:
        await self.network.publish(self.topics[shard], data)

    async def follow(self, *shards: int) -> None:
        await self.network.follow([self.topics[shard] for shard in shards])

    @property
    def topics(self) -> list[str]:
        """Of its shards."""
        return [topic_of(self.network_id, shard) for shard in range(self.shards)]

    @property
    def refusing(self) -> str:
        """A second topic, on which every node refuses everything."""
        return f"/sapo/2/{self.network_id}/evidence"

    async def refuse(self, _sender: str, data: bytes) -> Verdict:
        self.refused.append(data)
        return Verdict.REJECT

    async def handle(self, sender: str, data: bytes) -> Verdict:
        self.heard.append(data)
        self.senders.append(sender)
        if self.fault is not None:
            raise self.fault
        return self.verdict

    @property
    def address(self) -> str:
        return self.network.addresses[0]

    def sees(self, *others: "Probe") -> bool:
        return {other.network.peer_id for other in others} <= {peer.peer_id for peer in self.network.peers()}

    def follows(self, other: "Probe") -> set[int]:
        """The shards that a connected peer follows, as far as this node has heard."""
        known = {peer.peer_id: peer.follows for peer in self.network.peers()}
        return {shard for shard, topic in enumerate(self.topics) if topic in known.get(other.network.peer_id, ())}

    @property
    def session(self) -> Session:
        """The session of the present life, to look into or to break."""
        assert self.network._session is not None
        return self.network._session

    @property
    def mesh(self) -> set[str]:
        """The peers in the mesh of its first shard."""
        return self.session.machine.topics[self.topics[0].encode()].mesh

    def streams(self) -> list[int]:
        """The number of gossip streams that each connected peer holds open."""
        return [len(peer.streams) for peer in self.session.machine.peers.values()]

    def break_service(self) -> None:
        """The next heartbeat fails."""
        self.session.machine.heartbeat = None  # type: ignore[method-assign, assignment]

    def links(self) -> frozenset[str]:
        return self.network._linked()

    def noticed(self, kind: type) -> list[Any]:
        return [notice for notice in self.notices if isinstance(notice, kind)]


Start = Callable[..., Awaitable[Probe]]


@pytest.fixture
def probe() -> type[Probe]:
    return Probe


@pytest.fixture
async def start(nursery: trio.Nursery) -> Start:
    """`await start(number, **settings)` runs a node until the test ends."""

    async def run(number: int, **settings: Any) -> Probe:
        probe = Probe(number, **settings)
        await nursery.start(probe.run)
        return probe

    return run


@dataclass
class Attacker:
    """A peer that speaks noise, yamux and multistream correctly and then whatever it likes."""

    host: Any
    keys: Any
    target: Any
    stream: Any
    received: list[Any]
    """The RPCs that the node sent, as they come in."""

    @property
    def peer_id(self) -> str:
        return str(self.host.get_id())

    async def send(self, raw: bytes) -> None:
        """One length-prefixed RPC of these bytes."""
        await self.stream.write(encode_varint_prefixed(raw))

    async def send_rpc(self, rpc: Any) -> None:
        await self.send(rpc.SerializeToString())

    def message(self, data: bytes, *, seqno: int = 1, topic: str = TOPIC) -> Any:
        """A message with a good gossip signature."""
        message = rpc_pb2.Message(
            data=data, topicIDs=[topic], from_id=self.host.get_id().to_bytes(), seqno=seqno.to_bytes(8, "big")
        )
        message.signature = self.keys.private_key.sign(PUBSUB_SIGNING_PREFIX.encode() + message.SerializeToString())
        message.key = self.keys.public_key.serialize()
        return message

    @staticmethod
    def rpc(*messages: Any) -> Any:
        return rpc_pb2.RPC(publish=messages)

    def linked(self) -> bool:
        return any(not link.is_closed for link in self.host.get_network().get_connections(self.target))


Attack = Callable[..., AbstractAsyncContextManager[Attacker]]


GREETING_SECONDS = 2.0  # for the node to open its stream to an attacker; it opens none to one that it refuses


@asynccontextmanager
async def attack(address: str, number: int = 200) -> AsyncIterator[Attacker]:
    seed = bytes([number]) * 32
    keys, host = create_new_key_pair(seed), stock_host(seed)
    target = ID.from_string(address.rpartition("/")[2])
    received: list[Any] = []
    greeted = trio.Event()

    async def listen(stream: Any) -> None:
        try:
            while True:
                received.append(rpc_pb2.RPC.FromString(await read_varint_prefixed_bytes(stream)))
                greeted.set()
        except (IOException, ParseError):
            return

    # Without it the node has no stream to write to, and forgets nothing of us when we leave.
    host.set_stream_handler(PROTOCOL_ID_V11, listen)
    async with host.run(listen_addrs=[Multiaddr(LOOPBACK)]):
        await host.get_network().dial_addr(Multiaddr(address), target)
        stream = await host.new_stream(target, [PROTOCOL_ID_V11])
        with trio.move_on_after(GREETING_SECONDS):  # before it greets us, the node drops what it has for us
            await greeted.wait()
        try:
            yield Attacker(host, keys, target, stream, received)
        finally:
            await host.close()  # leaving the context alone would keep the socket open


@pytest.fixture
def attacker() -> Attack:
    """`async with attacker(address) as mallory` connects an attacker to a node."""
    return attack


@pytest.fixture
async def pair(start: Start) -> tuple[Probe, Probe]:
    """A node, and another that dialled it and follows its topic."""
    one = await start(1)
    other = await start(2, bootstrap=(one.address,))
    await wait_until(lambda: one.sees(other))
    return one, other


@dataclass
class PeerProcess:
    """A node in its own process."""

    process: trio.Process
    address: str

    @property
    def peer_id(self) -> str:
        return self.address.rpartition("/")[2]

    async def kill(self) -> None:
        """SIGKILL: no goodbye, no flush."""
        self.process.kill()
        await self.process.wait()


Spawn = Callable[..., Awaitable[PeerProcess]]


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    """`await spawn(number, listen=..., bootstrap=...)` runs a node in its own process until the test ends."""
    running: list[PeerProcess] = []
    script = Path(__file__).with_name("peer_process.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    async def run(number: int, *, listen: str = LOOPBACK, bootstrap: Sequence[str] = ()) -> PeerProcess:
        argv = [sys.executable, str(script), str(number), SWARM, listen, *bootstrap]
        process = await trio.lowlevel.open_process(argv, stdout=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        line = bytearray()
        with trio.fail_after(60):
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some(1)
        running.append(PeerProcess(process, line.decode().strip()))
        return running[-1]

    yield run
    for peer in running:
        await peer.kill()
