"""The Grafana dashboard, the alert rules and docs/operate/metrics.md name the metrics that a node has."""

import json
import re
from pathlib import Path

import pytest
import yaml

from sapo_node.observability.dashboard.prometheus import EXPOSED, table
from sapo_node.observability.overview import overview
from sapo_node.observability.reasons import reason_for
from sapo_node.training.take_back import TAKEN_BACK

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
METRICS = {each.full_name: each for each in EXPOSED}
DASHBOARD = json.loads((DOCS / "operate" / "grafana.json").read_text())
PANELS = DASHBOARD["panels"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
RULES = [
    rule for group in yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
EXPRESSIONS = [*(each["expr"] for each in TARGETS), *(each["expr"] for each in RULES)]
OF_PROMETHEUS = {"instance", "job"}


def names(expression):
    return re.findall(r"sapo_\w+", expression)


def test_the_table_of_metrics_is_what_the_code_says():
    assert table() in (DOCS / "operate" / "metrics.md").read_text(), "run: python scripts/metrics.py"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_metrics_of_a_node_and_their_labels(expression):
    assert set(names(expression)) <= set(METRICS)
    for name, labels in re.findall(r"(sapo_\w+)\{([^}]*)\}", expression):
        assert {each.split("=")[0].strip() for each in labels.split(",")} <= {METRICS[name].label, *OF_PROMETHEUS}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_takes_the_rate_of_counters_alone(expression):
    rated = re.findall(r"(?:rate|increase)\((\w+)", expression)
    assert all(METRICS[name].kind == "counter" for name in rated)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["legendFormat"])
def test_a_legend_tells_apart_what_the_label_of_a_metric_tells_apart(target):
    [name] = names(target["expr"])
    named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert named == {"instance", *filter(None, [METRICS[name].label])}


def test_the_dashboard_finds_its_nodes_by_a_metric_that_a_relay_has_as_well(database):
    [instance] = [each for each in DASHBOARD["templating"]["list"] if each["name"] == "instance"]
    [name] = names(instance["query"])
    of_relay = METRICS[name].family(overview(database))
    assert of_relay
    assert [sample.name for sample in of_relay.samples] == [name]


def test_alerts_name_reasons_that_the_node_has():
    reasons = re.findall(r'reason="([^"]+)"', " ".join(EXPRESSIONS))
    assert reasons
    assert all(each == TAKEN_BACK or reason_for(each) for each in reasons)


def test_every_alert_says_which_node_it_is_about():
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 6
    assert all("$labels.instance" in rule["annotations"]["summary"] for rule in RULES)
