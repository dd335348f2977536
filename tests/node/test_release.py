"""What a release is made of: its version, its workflow, and the files that run a node beside Prometheus and Grafana."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from sapo_node.cli.commands.running import start
from sapo_node.cli.main import cli

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
YAML = [*DEPLOY.rglob("*.y*ml"), *(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"]
ALERTS = [rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
ALERT_TESTS = ROOT / "tests/node/alerts.yml"
SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, which comes with Prometheus"
)


def mounts(service):
    """(path on this machine, path in the container) of each file or folder that a service mounts."""
    for each in SERVICES[service]["volumes"]:
        host, inside = each.split(":")[:2]
        if host.startswith("."):
            yield (DEPLOY / host).resolve(), inside


def test_the_version_is_the_same_wherever_it_is_named():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert re.search(r"^## \[(.+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version


def test_every_licence_that_is_shipped_is_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shipped = [
        file.relative_to(ROOT)
        for package in ("protocol", "node", "adversary")
        for file in (ROOT / package).rglob("LICENSE*")
    ]
    assert shipped
    assert {"LICENSE", *map(str, shipped)} == set(project["license-files"])
    assert project["license"] == "Apache-2.0 AND MIT"


@pytest.mark.parametrize("file", YAML, ids=lambda file: file.name)
def test_a_file_of_yaml_is_one(file):
    assert isinstance(yaml.safe_load(file.read_text()), dict)


def test_the_workflow_runs_only_what_a_commit_names():
    used = re.findall(r"uses: (\S+)", (ROOT / ".github/workflows/release.yml").read_text())
    assert len(used) >= 3
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used), "a tag can be moved, a commit cannot"


@pytest.mark.parametrize("service", SERVICES)
def test_what_a_service_mounts_is_there(service):
    assert all(path.exists() for path, _ in mounts(service))
    assert SERVICES[service].get("network_mode", "service:prometheus") == "service:prometheus"


def test_prometheus_asks_the_node_where_it_serves_its_page():
    context = start.make_context("start", SERVICES["node"]["command"][1:])
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    [scraped] = prometheus["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [context.params["dashboard"]]}]
    assert {f"/etc/prometheus/{name}" for name in prometheus["rule_files"]} < {
        inside for _, inside in mounts("prometheus")
    }


def test_grafana_finds_prometheus_and_the_dashboard():
    [source] = yaml.safe_load((DEPLOY / "grafana/datasources/prometheus.yaml").read_text())["datasources"]
    assert f"--web.listen-address={source['url'].removeprefix('http://')}" in SERVICES["prometheus"]["command"]
    [provider] = yaml.safe_load((DEPLOY / "grafana/dashboards/sapo-node.yaml").read_text())["providers"]
    assert provider["options"]["path"] in {str(Path(inside).parent) for _, inside in mounts("grafana")}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_documented_metrics_and_says_what_to_do(rule):
    documented = (ROOT / "docs/operate/metrics.md").read_text()
    assert all(f"`{name}`" in documented for name in re.findall(r"sapo_\w+", rule["expr"]))
    assert rule["annotations"].keys() == {"summary", "action"}
    for command in re.findall(r"`sapo-node ([\w-]+)", rule["annotations"]["action"]):
        assert cli.get_command(click.Context(cli), command)


def test_each_alert_is_tested_where_it_fires():
    cases = [case for test in yaml.safe_load(ALERT_TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    firing = {case["alertname"] for case in cases if "exp_alerts" in case}
    assert firing == {rule["alert"] for rule in ALERTS}


@needs_promtool
def test_an_alert_fires_when_it_should_and_only_then():
    subprocess.run(["promtool", "test", "rules", ALERT_TESTS], check=True)


@needs_promtool
def test_prometheus_takes_its_configuration_and_the_alerts():
    for check in (["check", "rules", DEPLOY / "alerts.yml"], ["check", "config", DEPLOY / "prometheus.yml"]):
        subprocess.run(["promtool", *check], check=True)
