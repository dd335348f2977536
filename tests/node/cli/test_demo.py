"""The table that `sapo-node demo` shows while it runs, and its summary."""

import pytest
from rich.console import Console

from sapo_node.app.config import Config, load_config
from sapo_node.cli.demo import (
    Demo,
    FirstExternal,
    Member,
    Plan,
    exchange_line,
    first_external,
    print_summary,
    states_of,
    summarise,
)

BAND = ["bad1", "bad2", "bad3"]
EVALUATED = {"pass_at_1": 0.5, "low": 0.4, "high": 0.6}


def member(number, *, at, rounds=(), peers=(), **facts):
    """A node that started at a Unix time. `rounds` are end and external groups; `peers` are id, state and tokens."""
    return Member(
        f"node {number}",
        folder=None,
        process=None,
        session={"peer_id": f"good{number}", "at": at, "page": ""},
        rounds=list(rounds),
        knows={
            "own_tokens": 60,
            "counts": {"accepted": 7, "false claim": 2},
            "peers": [
                {"peer": peer, "state": state, "trained_tokens": tokens, "trust": 0.5} for peer, state, tokens in peers
            ],
        },
        **facts,
    )


def shown(folder, *members, rounds):
    """The table of a demo with these nodes."""
    console = Console(width=200)
    demo = Demo(folder, Plan("seed", "starter", rounds, 1), console=console)
    demo.members, demo.band = list(members), BAND
    with console.capture() as capture:
        console.print(demo._table())
    return capture.get()


def test_a_node_that_goes_on_until_the_others_are_done_shows_no_more_rounds_than_were_asked_for(tmp_path):
    assert "60 of 60" in shown(tmp_path, member(1, at=0, last={"step": 67}), rounds=60)


def test_rounds_before_the_swarm_was_complete_do_not_count(tmp_path):
    assert "55 of 60" in shown(tmp_path, member(1, at=0, last={"step": 67}, alone=12), rounds=60)


def test_the_table_tells_text_of_honest_strangers_from_text_of_malicious_keys(tmp_path):
    peers = [("good2", "untrusted", 30), ("bad1", "banned", 0), ("bad2", "untrusted", 10)]
    text = shown(tmp_path, member(1, at=0, rounds=[(1, 4)], peers=peers), member(2, at=0), rounds=60)
    assert " ".join(text.splitlines()[2].split()) == "node 1 0 of 60 0.000 4 30% 2 1 of 3 10"


def test_the_table_of_nodes_that_have_not_started_has_no_figures(tmp_path):
    text = shown(tmp_path, Member("node 1", None, None), Member("node 2", None, None), rounds=60)
    assert "none has trained on external groups yet" in text


@pytest.mark.parametrize(
    ("started", "rounds", "first"),
    [
        (10.0, [(12, 0), (14, 0), (16, 3)], FirstExternal(3, 6.0)),
        (0.0, [(5, 0), (9, 0), (12, 0), (14, 1)], FirstExternal(2, 4.0)),
        (10.0, [(12, 0)], None),
    ],
    ids=["joins the other", "waits for the other", "not yet"],
)
def test_the_first_external_group_is_counted_from_the_moment_when_two_honest_nodes_run(started, rounds, first):
    node = member(1, at=started, rounds=rounds)
    other = member(2, at=10.0 - started)
    assert first_external(node, [node, other]) == first


def test_a_node_that_is_alone_has_no_contact():
    alone = member(1, at=0, rounds=[(1, 1)])
    assert first_external(alone, [alone, Member("node 2", None, None)]) is None


def test_the_line_tells_the_slowest_node_and_how_many_have_begun():
    line = exchange_line([FirstExternal(2, 3.0), None, FirstExternal(1, 9.0)])
    assert "2 of 3" in line
    assert "within 2 rounds and 9 s" in line


def test_a_key_counts_by_the_worst_state_that_an_honest_node_gave_to_it():
    first = member(1, at=0, peers=[("bad1", "banned", 0), ("bad2", "untrusted", 0)])
    second = member(2, at=0, peers=[("bad1", "untrusted", 0), ("bad2", "probation", 0)])
    assert states_of([first, second], BAND) == {"banned": 1, "probation": 1, "untrusted": 1}


def test_the_summary_says_what_strangers_and_malicious_keys_came_to():
    first = member(1, at=0, rounds=[(2, 1)], peers=[("good2", "untrusted", 30), ("bad1", "banned", 10)])
    second = member(2, at=1, rounds=[(3, 0)])
    summary = summarise([first, second], BAND, EVALUATED, {"node 1": EVALUATED, "node 2": EVALUATED})
    assert summary["malicious"] == {"keys": 3, "states": {"banned": 1, "untrusted": 2}, "trained_tokens": 10}
    assert [node["external_share"] for node in summary["honest"]] == [0.3, 0.0]
    assert [node["first_external"] for node in summary["honest"]] == [{"round": 1, "seconds": 1}, None]
    assert summary["refused"] == {"false claim": 4}
    console = Console(width=200)
    with console.capture() as capture:
        print_summary(summary, console)
    text = capture.get()
    assert "1 of 2 honest nodes" in text
    assert "0% to 30% of the tokens trained on" in text
    assert "3 malicious keys: 1 banned, 2 untrusted; 10 of their tokens trained on" in text
    assert "refused false claim 4" in text


def test_a_large_model_gets_fewer_rounds_longer_epochs_and_tasks_that_it_can_learn():
    seed, large = Plan.of(None, None, None, None), Plan.of("smollm2", None, None, None)
    assert (seed.model, seed.swarm, large.swarm) == ("seed", "starter", "smollm2-easy")
    assert (large.rounds, large.prompts) < (seed.rounds, seed.prompts)
    assert large.epoch_seconds > seed.epoch_seconds


def test_what_the_user_gives_goes_before_what_the_model_decides():
    assert Plan.of("smollm2", "starter", 3, 2) == Plan("smollm2", "starter", 3, 2)
    assert Plan.of("seed", "interop", None, None).swarm == "interop"


@pytest.mark.parametrize("model", ["seed", "smollm2"])
def test_the_nodes_take_the_configuration_of_the_demo(tmp_path, model):
    Demo(tmp_path, Plan.of(model, "starter", 1, 1), console=Console())
    config = load_config(tmp_path / "config.toml")
    assert (config == Config()) == (model == "seed")
    assert config.eval_every == (0 if model == "smollm2" else Config().eval_every)


@pytest.mark.slow
async def test_the_untrained_model_is_evaluated_beside_the_configuration_of_the_nodes(tmp_path):
    demo = Demo(tmp_path, Plan("seed", "starter", 1, 1), console=Console(quiet=True))
    assert 0 <= (await demo._evaluate(None))["pass_at_1"] < 1
