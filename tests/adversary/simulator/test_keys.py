"""An attacker who splits its messages over more keys sends as many of them as before, over the same links."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing
from click.testing import CliRunner

from sapo_adversary.cli.main import cli, main
from sapo_adversary.scenarios.scenario import load_scenario, with_keys
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.attackers import Band
from sapo_adversary.simulator.crowd import hub_of
from sapo_adversary.simulator.simulation import AttackerSpec, NodeSpec, Simulation
from sapo_adversary.simulator.swarm import FIRST_EPOCH, identity_of, manifest_of
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import Channel
from sapo_node.processes.clock import TrioClock
from sapo_protocol import LocalError, open_message, peer_id, rollouts_topics

KEYS = (1, 64, 1024)
SCENARIO = 'title = "t"\nattack = "false-claim"\nundefended = ["re-verification"]\n'


def heard(band, seconds):
    """What a listener hears of one band: who signed each message, and who sent it."""
    simulation = Simulation(
        "one attack",
        (NodeSpec(round_seconds=seconds),),
        seconds=seconds,
        epoch_seconds=600,
        max_rounds=60,
        attackers=(band,),
    )
    manifest = manifest_of(simulation)
    signed, sent = [], []

    async def take(sender, data):
        signed.append(peer_id(open_message(data, manifest).opened.issuer))
        sent.append(sender)
        return Verdict.IGNORE

    async def play():
        clock = TrioClock(manifest.genesis + FIRST_EPOCH * manifest.epoch_seconds)
        hub = hub_of(simulation)
        topics = dict.fromkeys(rollouts_topics(manifest), Channel(take, manifest.max_message_bytes))
        listener = hub.join(identity_of(simulation, 0), topics, admit=lambda _: True, notify=lambda _: None)
        attackers = Band(simulation, 0, manifest, scorer=SharedScorer(), hub=hub, clock=clock, crowd=None)
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.run)
            nursery.start_soon(attackers.play)
            await trio.sleep(seconds + 1)
            nursery.cancel_scope.cancel()

    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))
    return signed, sent


def band_with(keys, name="poison-text-adaptive"):
    [band] = with_keys(load_scenario(name), keys).simulation("defended").attackers
    return band


@pytest.mark.parametrize("keys", KEYS)
def test_the_same_messages_are_sent_whatever_the_number_of_keys(keys):
    signed, _ = heard(band_with(keys), seconds=100.0)
    assert len(signed) == 20  # one in five seconds
    assert len(set(signed)) == min(keys, 20)


@pytest.mark.parametrize("keys", KEYS)
def test_keys_beyond_the_links_send_over_the_same_links(keys):
    _, sent = heard(band_with(keys), seconds=100.0)
    assert len(set(sent)) == 1


@pytest.mark.parametrize(("links", "senders"), [(3, 3), (0, 12)])
def test_links_carry_what_all_keys_sign_and_without_them_each_key_has_its_own(links, senders):
    signed, sent = heard(AttackerSpec("sybil", count=12, links=links), seconds=8.0)
    assert len(set(signed)) == 12
    assert len(set(sent)) == senders


def test_one_key_signs_no_more_in_an_epoch_than_the_swarm_has_rounds():
    counts = [len(heard(band_with(keys), seconds=595.0)[0]) for keys in (1, 2)]
    assert counts == [60, 119]


@pytest.mark.parametrize("name", ["new-keys", "cherry-pick", "equivocation-minting"])
def test_the_help_and_the_page_name_the_attacks_that_send_other_messages_with_other_keys(name):
    numbers = {len(heard(band_with(keys, name), seconds=40.0)[0]) for keys in (4, 16)}
    assert len(numbers) == 2
    assert name in CliRunner().invoke(cli, ["run", "--help"], terminal_width=1_000).output
    assert f"`{name}`" in (Path(__file__).parents[3] / "docs/extend/writing-an-attack.md").read_text("utf-8")


def test_a_quarter_of_all_peers_keeps_its_links_when_it_has_more_keys():
    file, split = band_with(0, "sybil"), band_with(512, "sybil")
    assert (file.count, file.links, file.acts_every) == (4, 0, 2.0)
    assert (split.count, split.links, split.acts_every) == (512, 4, 256.0)


def test_each_number_of_keys_has_a_record_of_its_own():
    scenario = load_scenario("poison-text-adaptive")
    digests = {with_keys(scenario, keys).simulation("defended").digest() for keys in KEYS}
    assert len(digests) == len(KEYS)


def test_the_number_of_keys_changes_no_run_without_attackers():
    scenario = load_scenario("poison-text-adaptive")
    for arm in ("alone", "control"):
        assert len({with_keys(scenario, keys).simulation(arm).digest() for keys in KEYS}) == 1


def test_the_file_of_a_scenario_may_name_the_number_of_keys(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f"{SCENARIO}keys = 64\n")
    [band] = load_scenario(str(path)).simulation("defended").attackers
    assert (band.count, band.links) == (64, 4)


@pytest.mark.parametrize("keys", [0, 2])
def test_each_of_two_attacks_has_a_key_where_the_share_is_of_one_attacker_alone(tmp_path, keys):
    path = tmp_path / "mine.toml"
    path.write_text(f'{SCENARIO}beside = ["flat"]\n')
    bands = with_keys(load_scenario(str(path)), keys).simulation("defended", share=0.0625).attackers
    assert [(band.attack, band.count) for band in bands] == [("false-claim", 1), ("flat", 1)]


@pytest.mark.parametrize("keys", [1, 3])
def test_keys_that_two_attacks_cannot_share_equally_are_refused(tmp_path, keys):
    path = tmp_path / "mine.toml"
    path.write_text(f'{SCENARIO}beside = ["flat"]\n')
    with pytest.raises(LocalError, match="splits its keys over 2 attacks: give a multiple of 2"):
        with_keys(load_scenario(str(path)), keys)


@pytest.mark.parametrize("keys", [0, 2])
def test_attackers_without_a_key_are_refused(tmp_path, keys):
    path = tmp_path / "mine.toml"
    path.write_text(f"{SCENARIO}keys = {keys}\n[attackers]\ncount = 0\n")
    with pytest.raises(LocalError, match="count of the attackers false-claim is 0; give more than 0"):
        load_scenario(str(path))


def test_a_negative_number_of_keys_in_a_file_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f"{SCENARIO}keys = -1\n")
    with pytest.raises(LocalError, match="keys of mine must be a whole number, 0 or more"):
        load_scenario(str(path))


def test_keys_of_a_scenario_on_libp2p_are_refused(tmp_path, run_here):
    code, told = run_here(main, "run", "eclipse", "--keys", 64, "--output", tmp_path)
    assert code == 1
    assert "each key is a host" in told.err


@pytest.mark.parametrize("keys", ["0", "-1", "1000000"])
def test_a_number_of_keys_out_of_bounds_is_refused_at_once(keys):
    done = CliRunner().invoke(cli, ["run", "false-claim", "--keys", keys])
    assert done.exit_code == 2
    assert "--keys" in done.output


def test_more_links_than_keys_are_refused():
    with pytest.raises(LocalError, match="links is 3; give 0 to 2"):
        Simulation("links", (NodeSpec(),), attackers=(AttackerSpec("sybil", count=2, links=3),))


def test_strangers_start_without_trust_whatever_the_file_says():
    scenario = replace(load_scenario("poison-text-adaptive"), strangers=True)
    played = scenario.simulation("defended")
    assert not played.trusted
    assert not any(band.trusted for band in played.attackers)
