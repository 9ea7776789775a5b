"""Examples of docs/how-to that no test can run here: Kubernetes, systemd, Prometheus, HAProxy, console commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek.broker.config.sources import load
from tests.support.page_commands import blocks

ROOT = Path(__file__).resolve().parents[1]
HOW_TO = ROOT / "docs" / "how-to"
PAGES = sorted(HOW_TO.glob("*.md"))
KUBERNETES_VERSION = "1.34"
TIMEOUT_S = 60.0
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((HOW_TO / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
METRICS = {
    name: {label.strip() for label in labels.split(",")} - {"-"}
    for name, labels in re.findall(
        r"^\| `(\w+)` \| \w+ \| ([^|]+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE
    )
} | {"up": {"job"}}
TARGET_LABELS = {"instance", "job"}
DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
FUNCTIONS = {"sum", "max", "rate", "increase", "max_over_time"}
CONSOLE_COMMANDS = {
    "python3.11", "/opt/odradek-NEW/bin/pip", "ln", "systemctl", "journalctl", "useradd", "install", "until", "openssl",
    "kubectl", "pipx", "uv", "pip",
}  # fmt: skip
"""Commands that need root, the network, systemd or Kubernetes. All others belong into a block that a test runs."""


def titled(page: str, title: str) -> str:
    [text] = [block.text for block in blocks((HOW_TO / page).read_text()) if block.title == title]
    return text


def test_manifest_follows_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: `make setup` installs it"
    ).validate
    kinds = []
    for document in yaml.safe_load_all(titled("kubernetes.md", "odradek.yaml")):
        validate(document, KUBERNETES_VERSION, strict=True)
        kinds.append(document["kind"])
    assert kinds == ["Service", "Service", "PodDisruptionBudget", "StatefulSet"]


def test_environment_of_each_pod_is_a_valid_configuration_of_one_voter() -> None:
    [stateful_set] = [
        document
        for document in yaml.safe_load_all(titled("kubernetes.md", "odradek.yaml"))
        if document["kind"] == "StatefulSet"
    ]
    [container] = stateful_set["spec"]["template"]["spec"]["containers"]
    voters = set()
    for number in range(stateful_set["spec"]["replicas"]):
        pod = f"{stateful_set['metadata']['name']}-{number}"
        environment = {
            entry["name"]: entry["value"].replace("$(POD_NAME)", pod) for entry in container["env"] if "value" in entry
        }
        command = container["command"][2].replace("exec odradek broker", "env")
        printed = subprocess.run(
            ["sh", "-c", command], env={"POD_NAME": pod}, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        ).stdout
        assert f"ODRADEK_NODE_ID={number + 1}\n" in printed
        config = load(environment={**environment, "ODRADEK_NODE_ID": str(number + 1)}, strict=True)
        advertised = environment["ODRADEK_ADVERTISED_LISTENERS"].split(",")[0].removeprefix("INTERNAL://")
        voters.add(f"{config.node_id}@{advertised}")
    assert voters == set(environment["ODRADEK_CONTROLLER_QUORUM_VOTERS"].split(","))


@pytest.mark.parametrize(("page", "title"), [("proxy.md", "server.properties"), ("replace.md", "broker-4.properties")])
def test_properties_of_a_page_have_known_names_and_valid_values(page: str, title: str) -> None:
    secret = {"ODRADEK_INTER_BROKER_AUTHENTICATION": "none", "ODRADEK_CLUSTER_SECRET_FILE": ""}
    text = titled(page, title)
    assert load(properties=text, environment=secret, strict=True).node_id == int(text.partition("node.id=")[2][0])


def test_unit_is_accepted_by_systemd(tmp_path: Path) -> None:
    text = titled("systemd.md", "odradek.service")
    command = shlex.split(next(line for line in text.splitlines() if line.startswith("ExecStart=")).partition("=")[2])
    assert command[1:3] == ["broker", "--strict"]
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed, so the unit is not verified")
    unit = tmp_path / "odradek.service"
    unit.write_text(text.replace(command[0], str(Path(sys.executable).with_name("odradek"))))
    verified = subprocess.run(
        [verify, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    # Without a running systemd, newer versions end with an error of D-Bus before they read the unit.
    if "bus" in verified.stderr.lower() and unit.name not in verified.stderr:
        pytest.skip(f"systemd-analyze cannot verify here: {verified.stderr.strip()}")
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_alert_rule_is_valid(rule: dict[str, Any]) -> None:
    """The fields, the metrics with their labels, the functions and the durations of a rule exist."""
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "action"}
    assert DURATION.fullmatch(rule.get("for", "1s"))
    expression = rule["expr"]
    assert expression.count("(") == expression.count(")")
    used = [name for name in re.findall(r"[a-z_]\w{1,}(?![\w(]|=)", expression) if name in METRICS]
    assert len(used) == 1, "each rule has one metric of docs/metrics.md"
    names = set(re.findall(r"\b([a-z_]+) ?\(", expression)) - {"by"}
    assert names <= FUNCTIONS
    assert all(DURATION.fullmatch(window) for window in re.findall(r"\[(.*?)\]", expression))
    assert re.search(r" (?:==|!=|>|<) \d+$", expression), "each rule compares with a threshold"
    grouped = re.search(r"by \(([^)]*)\)", expression)
    kept = set(grouped[1].split(", ")) if grouped else METRICS[used[0]] | TARGET_LABELS
    if expression.startswith("sum("):
        kept = set()
    assert kept <= METRICS[used[0]] | TARGET_LABELS
    shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert shown <= kept, "an annotation shows a label that the expression removes"


def test_each_alert_has_a_row_in_its_page_and_each_row_an_alert() -> None:
    rows = re.findall(r"^\| `(Odradek\w+)` \| (\w+) \|", (HOW_TO / "alerts.md").read_text(), re.MULTILINE)
    assert rows == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]


def test_scrape_configuration_loads_the_rules_for_their_job() -> None:
    configuration = yaml.safe_load(titled("alerts.md", "prometheus.yml"))
    [job] = configuration["scrape_configs"]
    assert configuration["rule_files"] == ["alerts.yml"]
    assert {found for rule in RULES for found in re.findall(r'job="(\w+)"', rule["expr"])} == {job["job_name"]}


def test_proxy_forwards_the_advertised_port_to_the_listener_of_the_broker() -> None:
    properties = dict(
        line.split("=", 1) for line in titled("proxy.md", "server.properties").splitlines() if "=" in line
    )
    advertised = dict(entry.split("://") for entry in properties["advertised.listeners"].split(","))
    listeners = dict(entry.split("://") for entry in properties["listeners"].split(","))
    text = titled("proxy.md", "haproxy.cfg")
    binds = re.findall(r"bind :(\d+)\n\s+server (\S+) \S+:(\d+)", text)
    assert len({name for _, name, _ in binds}) == len({port for port, _, _ in binds}) == 3
    assert binds[0][0] == advertised["PROXY"].rpartition(":")[2]
    assert {port for _, _, port in binds} == {listeners["PROXY"].rpartition(":")[2]}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console_blocks_have_only_commands_that_no_test_can_run(page: Path) -> None:
    console = [block for block in blocks(page.read_text()) if block.language == "console"]
    lines = [line for block in console for line in block.text.splitlines()]
    assert [line for line in lines if line[:2] not in {"# ", "$ "} or line.split()[1] not in CONSOLE_COMMANDS] == []
