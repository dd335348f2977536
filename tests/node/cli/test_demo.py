"""The table that `sapo-node demo` shows while it runs."""

from rich.console import Console

from sapo_node.cli.demo import Demo
from sapo_node.cli.demo_summary import Member


def shown(folder, *, steps, alone, rounds):
    """The table of a demo with one node, which has played `equation` rounds, `alone` of them before the others came."""
    console = Console(width=200)
    demo = Demo(folder, rounds=rounds, prompts=1, console=console)
    demo.members = [Member("node 1", folder, process=None, last={"step": steps}, alone=alone)]
    with console.capture() as capture:
        console.print(demo._table())
    return capture.get()


def test_a_node_that_goes_on_until_the_others_are_done_shows_no_more_rounds_than_were_asked_for(tmp_path):
    assert "60 of 60" in shown(tmp_path, steps=67, alone=0, rounds=60)


def test_rounds_before_the_swarm_was_complete_do_not_count(tmp_path):
    assert "55 of 60" in shown(tmp_path, steps=67, alone=12, rounds=60)
