"""What a link costs over each transport that py-libp2p has: TCP, QUIC, and TCP through a third (circuit relay v2).

Stock hosts, all ends in one process, since the question is which of them a node could afford at all.
"""

import time
from contextlib import AsyncExitStack

import pytest
import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr import Multiaddr

from stock_libp2p import circuits_of, reserve, stock_host

pytestmark = pytest.mark.bench

SINK = "/sink/1"
MESSAGE_BYTES, MESSAGES = 32_768, 100
PATIENCE = 120.0
"""Seconds for all messages of one way."""


def quic_host(seed):
    return new_host(key_pair=create_new_key_pair(seed), enable_quic=True)


async def started(stack, number, *, make=stock_host, place="/ip4/127.0.0.1/tcp/0"):
    host = make(bytes([number]) * 32)
    await stack.enter_async_context(host.run(listen_addrs=[Multiaddr(place)]))
    return host


async def directly(stack, **options):
    sender, receiver = [await started(stack, number, **options) for number in (1, 2)]
    await sender.connect(info_from_p2p_addr(receiver.get_addrs()[0]))
    return sender, receiver


async def over_tcp(stack):
    return await directly(stack)


async def over_quic(stack):
    return await directly(stack, make=quic_host, place="/ip4/127.0.0.1/udp/0/quic-v1")


async def relayed(stack):
    sender, receiver, relay = [await started(stack, number) for number in (1, 2, 3)]
    away, back, _ = [await circuits_of(stack, host, carries=host is relay) for host in (sender, receiver, relay)]
    place = relay.get_addrs()[0]
    for host in (sender, receiver):
        await host.connect(info_from_p2p_addr(place))
    await reserve(receiver, back, relay.get_id())
    await away.dial(Multiaddr(f"{place}/p2p-circuit/p2p/{receiver.get_id()}"))
    return sender, receiver


async def sent(sender, receiver):
    """MB a second, and CPU milliseconds of all ends for each message."""
    wanted, there = MESSAGES * MESSAGE_BYTES, trio.Event()

    async def swallow(stream):
        got = 0
        while got < wanted:
            got += len(await stream.read(65_536))
        there.set()

    receiver.set_stream_handler(SINK, swallow)
    stream = await sender.new_stream(receiver.get_id(), [SINK])
    began, spent = time.perf_counter(), time.process_time()
    with trio.fail_after(PATIENCE):
        for _ in range(MESSAGES):
            await stream.write(bytes(MESSAGE_BYTES))
        await there.wait()
    seconds, spent = time.perf_counter() - began, time.process_time() - spent
    return wanted / 1e6 / seconds, 1e3 * spent / MESSAGES


async def test_quic_and_a_relayed_link_beside_tcp():
    costs = {}
    for _ in range(2):  # the first warms up
        for way in (over_tcp, over_quic, relayed):
            async with AsyncExitStack() as stack:
                costs[way] = await sent(*await way(stack))
    for way, (rate, cpu) in costs.items():
        times = cpu / costs[over_tcp][1]
        print(f"{way.__name__:10} {rate:6.1f} MB/s, {cpu:5.2f} ms of CPU for each 32 KB, {times:.1f} times TCP's")
