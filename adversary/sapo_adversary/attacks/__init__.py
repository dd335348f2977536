"""The messages of attackers, in one file for each part of a node that they attack. `catalogue` lists the attacks. `kit`
makes flawless messages to spoil.

An attacker speaks bytes: it imports `sapo_protocol` and nothing of a node or of another room. The simulator, the soak
test and `live` give it keys, a clock and a network:

    attack = ATTACKS["false-claim"](Kit(manifest, keys, solve, rng))
    for packet in attack.act(key, epoch):
        ...
"""
