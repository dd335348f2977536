"""A node says per task what its model learns from its own groups, and names the tasks that teach it nothing."""

from pathlib import Path

import pytest
import yaml
from rich.console import Console

from sapo_node.cli.tables import Screen
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup
from sapo_node.observability.dashboard.prometheus import exposition
from sapo_node.observability.overview import overview
from sapo_node.observability.tasks import MAX_QUIET_GROUPS
from sapo_node.sampling.external import saved_pass_rates
from sapo_node.sampling.memory import Memory

WRONG, RIGHT, MIXED = (0, 0), (1, 1), (0, 1)


def play(database, **groups):
    """Save the pass rates of a node after its groups of each task."""
    rates = saved_pass_rates(database)
    for task, levels in groups.items():
        for each in map(Levels, levels):
            completions = (Sampled("x", "stop", (1,)),) * len(each.each)
            rates.observe([LocalGroup(task, "?", b"", completions, each, local_advantages(each))])
    Memory(database, {"pass rates": rates}).save(1)


@pytest.mark.parametrize(("levels", "word"), [(WRONG, "hard"), (RIGHT, "easy")])
def test_a_task_without_an_informative_group_for_long_is_named_with_the_reason(database, levels, word):
    play(database, products=[levels] * MAX_QUIET_GROUPS, sums=[levels] * (MAX_QUIET_GROUPS - 1))
    [products, sums] = overview(database).tasks
    assert f"products teaches this model nothing, because it is too {word}: in each of the last 64" in products.advice
    assert sums.advice == ""


def test_one_informative_group_ends_the_advice(database):
    play(database, products=[*[WRONG] * MAX_QUIET_GROUPS, MIXED, WRONG])
    [products] = overview(database).tasks
    assert (products.quiet_groups, products.advice) == (1, "")


def test_a_group_of_equal_parts_of_an_answer_teaches_nothing_and_one_of_unequal_parts_does(database):
    rates = saved_pass_rates(database)
    for each in ((1, 1), (1, 2)):
        levels = Levels(each, 3)
        rates.observe([LocalGroup("sums", "?", b"", (), levels, local_advantages(levels))])
        [signal] = rates.signals()
        assert signal.quiet_groups == (each == (1, 1))
    assert signal.informative == pytest.approx(1 / 1.9)


def test_the_terminal_and_the_metrics_tell_it(database):
    play(database, products=[WRONG] * MAX_QUIET_GROUPS)
    view = overview(database)
    console = Console(width=400, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - ends with the test
    console.print(Screen(view))
    assert view.tasks[0].advice in console.export_text()
    told = exposition(view).decode()
    for name, value in (("pass_rate", 0.0), ("informative_ratio", 0.0), ("quiet_groups", 64.0)):
        assert f'sapo_task_{name}{{task="products"}} {value}' in told


def test_the_alert_waits_for_as_many_groups_as_the_node():
    rules = yaml.safe_load((Path(__file__).parents[3] / "deploy" / "alerts.yml").read_text())["groups"][0]["rules"]
    [expression] = [each["expr"] for each in rules if each["alert"] == "SapoTaskTeachesNothing"]
    assert expression == f"sapo_task_quiet_groups >= {MAX_QUIET_GROUPS}"
