"""A stock host that nobody can dial, which reaches another such by a hole that both punch at once (DCUtR).

`hidden_host.py PORT RELAY` waits to be reached; with the peer id of one that waits, it is dialled: directly, which must
fail, then through the relay, then with punching. `hidden_host.py PORT` is the relay. Each prints what it came to.
"""

import sys
from contextlib import AsyncExitStack

import trio
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.relay.circuit_v2.dcutr import DCUtRProtocol
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from stock_libp2p import circuits_of, reserve, stock_host

SINK = "/sink/1"
MESSAGE_BYTES, MESSAGES = 32_768, 100
DIRECT_SECONDS, PUNCH_SECONDS = 5.0, 60.0


async def main(address: str, port: int, relay: str = "", target: str = "") -> None:
    host = stock_host(port.to_bytes(32))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(host.run(listen_addrs=[Multiaddr(f"/ip4/{address}/tcp/{port}")]))
        circuits = await circuits_of(stack, host, carries=not relay)
        host.set_stream_handler(SINK, swallow)
        if relay:
            punching = DCUtRProtocol(host)
            await stack.enter_async_context(background_trio_service(punching))
            carrier = info_from_p2p_addr(Multiaddr(relay))
            await host.connect(carrier)
            await reserve(host, circuits, carrier.peer_id)
        print(host.get_addrs()[0], flush=True)
        if not target:
            await trio.sleep_forever()
        place, _, name = target.partition("/p2p/")
        peer = ID.from_string(name)
        print("directly:", await dialled(host, place, peer), flush=True)
        await circuits.dial(Multiaddr(f"{relay}/p2p-circuit/p2p/{peer}"))
        began = trio.current_time()
        with trio.move_on_after(PUNCH_SECONDS):
            print("punched:", await punching.initiate_hole_punch(peer), flush=True)
        print("seconds:", round(trio.current_time() - began, 1), flush=True)
        stream = await host.new_stream(peer, [SINK])
        print("over:", *stream.muxed_conn.get_transport_addresses(), flush=True)
        for _ in range(MESSAGES):
            await stream.write(bytes(MESSAGE_BYTES))
        print("answer:", (await stream.read(2)).decode(), flush=True)


async def swallow(stream):
    left = MESSAGES * MESSAGE_BYTES
    while left > 0:
        left -= len(await stream.read(65_536))
    await stream.write(b"ok")


async def dialled(host, place, peer):
    with trio.move_on_after(DIRECT_SECONDS):
        await host.get_network().dial_addr(Multiaddr(f"{place}/p2p/{peer}"), peer)
        return True
    return False


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
