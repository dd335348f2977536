"""Cases of kind `topic`: the two topic names of a swarm, and similar names (TOP-1, TOP-2)."""

from collections.abc import Iterable, Iterator

from cases import ACCEPT, Case
from wire import EXAMPLE, Swarm

ID = EXAMPLE.network_id.hex()
OTHER = Swarm(genesis=0)


def _passes(name: str, rule: str, topic: str, carries: str, swarm: Swarm = EXAMPLE) -> Case:
    fields = {"manifest": swarm.encoded(), "topic": topic}
    return Case(name, rule, "topic", fields, ACCEPT, {"carries": carries})


def _fails(name: str, rule: str, topic: str, note: str = "") -> Case:
    return Case(name, rule, "topic", {"manifest": EXAMPLE.encoded(), "topic": topic}, "topic", note=note)


def cases() -> Iterable[Case]:
    yield _passes("rollouts", "TOP-1", f"/sapo/2/{ID}/rollouts/0", "rollouts")
    yield _passes("evidence", "TOP-2", f"/sapo/2/{ID}/evidence", "evidence")
    yield _passes(
        "rollouts of another swarm", "VRS-1", f"/sapo/2/{OTHER.network_id.hex()}/rollouts/0", "rollouts", OTHER
    )
    yield _passes("evidence of another swarm", "TOP-2", f"/sapo/2/{OTHER.network_id.hex()}/evidence", "evidence", OTHER)
    yield from _prefixes()
    yield from _shards()
    yield from _evidence()


def _prefixes() -> Iterator[Case]:
    other = OTHER.network_id.hex()
    yield _fails("rollouts of major version 1", "VRS-1", f"/sapo/1/{ID}/rollouts/0")
    yield _fails("rollouts of major version 3", "VRS-1", f"/sapo/3/{ID}/rollouts/0")
    yield _fails("evidence of major version 3", "VRS-1", f"/sapo/3/{ID}/evidence")
    starts = {
        "a major version with a zero before it": f"/sapo/02/{ID}",
        "a major and a minor version": f"/sapo/2.0/{ID}",
        "no version": f"/sapo/{ID}",
        "capitals": f"/SAPO/2/{ID}",
        "another name": f"/sapo-node/2/{ID}",
        "no slash before it": f"sapo/2/{ID}",
        "two slashes before it": f"//sapo/2/{ID}",
        "a blank before it": f" /sapo/2/{ID}",
        "the network id of another swarm": f"/sapo/2/{other}",
        "a network id in capitals": f"/sapo/2/{ID.upper()}",
        "a network id of 63 digits": f"/sapo/2/{ID[:-1]}",
        "a network id of 65 digits": f"/sapo/2/{ID}0",
        "a network id with a prefix": f"/sapo/2/0x{ID}",
        "no network id": "/sapo/2/",
        "any network id": "/sapo/2/+",
    }
    for name, start in starts.items():
        yield _fails(f"rollouts with {name}", "TOP-1", f"{start}/rollouts/0")
    yield _fails("no topic", "TOP-1", "")


def _shards() -> Iterator[Case]:
    shards = {
        "shard 1": "/1",
        "no shard": "",
        "an empty shard": "/",
        "two zeros for a shard": "/00",
        "a zero before shard 1": "/01",
        "a plus before its shard": "/+0",
        "a minus before its shard": "/-0",
        "a hexadecimal shard": "/0x0",
        "a shard with a fraction": "/0.0",
        "a letter for a shard": "/o",
        "a zero of another script": "/\u0660",
        "a shard and a blank": "/0 ",
        "a shard and a line feed": "/0\n",
        "a shard and a zero byte": "/0\0",
        "a shard and a slash": "/0/",
        "a shard and a part more": "/0/0",
        "shard 2 to the 32": f"/{2**32}",
    }
    for name, shard in shards.items():
        note = "The example swarm has one shard, 0." if name == "shard 1" else ""
        yield _fails(f"rollouts of {name}", "TOP-1", f"/sapo/2/{ID}/rollouts{shard}", note)
    yield _fails("rollout in the singular", "TOP-1", f"/sapo/2/{ID}/rollout/0")
    yield _fails("rollouts in capitals", "TOP-1", f"/sapo/2/{ID}/Rollouts/0")


def _evidence() -> Iterator[Case]:
    ends = {
        "evidence of a shard": "evidence/0",
        "evidence and a slash": "evidence/",
        "evidence and a line feed": "evidence\n",
        "evidence in capitals": "Evidence",
        "proofs": "proofs",
        "nothing": "",
    }
    for name, end in ends.items():
        yield _fails(name, "TOP-2", f"/sapo/2/{ID}/{end}")
    yield _fails("evidence of a swarm not named", "TOP-2", "/sapo/2/evidence")
    yield _fails("evidence with the network id of another swarm", "TOP-2", f"/sapo/2/{OTHER.network_id.hex()}/evidence")
