"""Plan of a local cluster: voters, properties of its brokers, and refused settings."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from odradek import __version__
from odradek.broker_interface import PORT_MAX, variable_name
from odradek.commands.application import app
from odradek.local import launch
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import (
    INTER_BROKER_PORT_OFFSET,
    StartOptions,
    inter_broker_port,
    make_plan,
    new_cluster_id,
    refuse_lost_disks,
)
from odradek.local.plan import Plan, value_of
from odradek.local.processes import USAGE, BrokerFailed
from odradek.source_commit import source_commit
from tests.support.ports import free_port

DATA = Path("/data")


def plan(brokers: int, host: str = "127.0.0.1") -> Plan:
    """Return a plan with consecutive ports from 9092 for clients and from 11092 for brokers."""
    ports = {number: 9091 + number for number in range(1, brokers + 1)}
    inter_broker = {number: port + INTER_BROKER_PORT_OFFSET for number, port in ports.items()}
    return Plan("q7cB0kFhTx2nUoWcD4vJ8g", host, ports, inter_broker=inter_broker)


def rows(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize(
    ("brokers", "voters", "majority"), [(1, 1, 1), (2, 1, 1), (3, 3, 2), (4, 3, 2), (5, 5, 3), (6, 5, 3), (9, 5, 3)]
)
def test_number_of_voters_is_odd_and_at_most_five(brokers: int, voters: int, majority: int) -> None:
    assert plan(brokers).voters == list(range(1, voters + 1))
    assert plan(brokers).majority == majority


def test_topics_are_replicated_from_three_brokers_on() -> None:
    properties = rows(plan(3).properties(2, DATA))
    assert properties == {
        "node.id": "2",
        "listeners": "PLAINTEXT://127.0.0.1:9093,INTERNAL://127.0.0.1:11093",
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": "/data",
        "odradek.cluster.id": "q7cB0kFhTx2nUoWcD4vJ8g",
        "controller.quorum.voters": "1@127.0.0.1:11092,2@127.0.0.1:11093,3@127.0.0.1:11094",
        "group.initial.rebalance.delay.ms": "0",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    assert "default.replication.factor" not in rows(plan(2).properties(1, DATA))


@pytest.mark.parametrize(
    ("host", "listener", "endpoint"),
    [
        ("0.0.0.0", "PLAINTEXT://0.0.0.0:9092", "127.0.0.1:9092"),
        ("::1", "PLAINTEXT://[::1]:9092", "[::1]:9092"),
        ("localhost", "PLAINTEXT://localhost:9092", "localhost:9092"),
    ],
)
def test_clients_get_the_address_of_the_host_and_brokers_the_loopback_address(
    host: str, listener: str, endpoint: str
) -> None:
    properties = rows(plan(1, host).properties(1, DATA))
    assert properties["listeners"] == f"{listener},INTERNAL://127.0.0.1:11092"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:11092"
    assert plan(1, host).bootstrap == endpoint
    single = replace(plan(1, host), inter_broker={})
    properties = rows(single.properties(1, DATA))
    assert (properties["listeners"], properties["controller.quorum.voters"]) == (listener, f"1@{endpoint}")
    assert properties["inter.broker.listener.name"] == "PLAINTEXT"


def planned(directory: Path, last: Plan | None, options: StartOptions) -> Plan:
    new_plan, ports = make_plan(ClusterDirectory(directory), None if last is None else ClusterState(last), options)
    ports.close()
    return new_plan


def test_inter_broker_ports_are_kept_in_the_next_plan(tmp_path: Path) -> None:
    first = planned(tmp_path, None, StartOptions(2, None, 0))
    assert len({*first.ports.values(), *first.metrics.values(), *first.inter_broker.values()}) == 6
    assert planned(tmp_path, first, StartOptions(2)) == first
    assert planned(tmp_path, first, StartOptions(2, None, 0)) == first
    moved = planned(tmp_path, first, StartOptions(2, None, 9092))
    assert moved.inter_broker == {1: 9092 + INTER_BROKER_PORT_OFFSET, 2: 9093 + INTER_BROKER_PORT_OFFSET}
    assert inter_broker_port(PORT_MAX) == PORT_MAX - INTER_BROKER_PORT_OFFSET


def test_plan_of_an_earlier_version_keeps_its_client_ports_and_gets_inter_broker_ports(tmp_path: Path) -> None:
    first = free_port()
    ports = [first, first + 1]
    earlier = Plan("id", "127.0.0.1", dict(enumerate(ports, 1)), [], {1: 1, 2: 2})
    upgraded = planned(tmp_path, earlier, StartOptions(2))
    assert (upgraded.ports, upgraded.metrics) == (earlier.ports, earlier.metrics)
    assert upgraded.inter_broker == {1: inter_broker_port(ports[0]), 2: inter_broker_port(ports[1])}
    with socket.create_server(("127.0.0.1", inter_broker_port(ports[1]))):
        elsewhere = planned(tmp_path, earlier, StartOptions(2))
    assert elsewhere.ports == earlier.ports
    assert len(elsewhere.inter_broker) == 2
    assert inter_broker_port(ports[1]) not in elsewhere.inter_broker.values()


def test_brokers_of_a_new_plan_have_a_secret_unless_a_setting_names_one(tmp_path: Path) -> None:
    made = planned(tmp_path, None, StartOptions(1, None, 0))
    assert rows(made.properties(1, tmp_path / "broker-1"))["cluster.secret.file"] == str(tmp_path / "cluster.secret")
    own = planned(tmp_path, made, StartOptions(1, None, 0, ("cluster.secret.file=/run/secrets/cluster",)))
    assert "cluster.secret.file" not in rows(own.properties(1, tmp_path / "broker-1"))
    earlier = replace(made, has_secret=False)
    assert "cluster.secret.file" not in rows(earlier.properties(1, tmp_path / "broker-1"))
    assert planned(tmp_path, earlier, StartOptions(1)).has_secret


def test_setting_selects_no_authentication(tmp_path: Path) -> None:
    made = planned(tmp_path, None, StartOptions(3, None, 0, ("odradek.inter.broker.authentication=none",)))
    assert not made.has_secret
    assert planned(tmp_path, made, StartOptions(3)).has_secret


def test_setting_selects_a_single_listener(tmp_path: Path) -> None:
    first = planned(tmp_path, None, StartOptions(2, None, 0))
    single = planned(tmp_path, first, StartOptions(2, settings=("inter.broker.listener.name=PLAINTEXT",)))
    assert (single.ports, single.inter_broker) == (first.ports, {})
    assert planned(tmp_path, single, StartOptions(2)).inter_broker


def test_listeners_of_a_single_broker_can_be_set(tmp_path: Path) -> None:
    own = planned(tmp_path, None, StartOptions(1, None, 0, ("listeners=A://:7000",)))
    assert own.inter_broker == {}
    assert "inter.broker.listener.name" not in rows(own.properties(1, DATA))


def test_variable_of_an_own_property_selects_no_authentication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_INTER_BROKER_AUTHENTICATION", "none")
    assert not planned(tmp_path, None, StartOptions(3, None, 0)).has_secret


@pytest.mark.parametrize("setting", ["log.dirs=/data", "log.dirs = /data"])
def test_data_in_a_directory_of_a_setting_is_not_lost(tmp_path: Path, setting: str) -> None:
    assert is_lost(tmp_path, plan(1))
    assert not is_lost(tmp_path, replace(plan(1), settings=[setting]))


def test_data_in_a_directory_of_a_variable_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_lost(tmp_path, plan(1))
    monkeypatch.setenv("ODRADEK_LOG_DIRS", "/data")
    assert not is_lost(tmp_path, plan(1))


def is_lost(path: Path, formed: Plan) -> bool:
    """Return True if the start of broker 1, which has formed the cluster, is refused because its data is not there."""
    try:
        refuse_lost_disks(ClusterDirectory(path), ClusterState(formed, formed=[1]), [1], empty=False)
    except BrokerFailed as failed:
        return "the disk is lost" in str(failed)
    return False


def test_variable_selects_a_single_listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_INTER_BROKER_LISTENER_NAME", "PLAINTEXT")
    assert planned(tmp_path, None, StartOptions(2, None, 0)).inter_broker == {}


def test_cluster_ids_have_kafkas_form() -> None:
    cluster_ids = {new_cluster_id() for _ in range(300)}
    assert len(cluster_ids) == 300
    assert all(len(cluster_id) == 22 and not cluster_id.startswith("-") for cluster_id in cluster_ids)


@pytest.mark.parametrize(
    ("brokers", "setting"), [(1, "node.id=4"), (3, "node.id=4"), (3, "listeners=A://:9"), (3, "log.dirs=/data")]
)
def test_setting_that_differs_between_brokers_is_refused_for_all(tmp_path: Path, brokers: int, setting: str) -> None:
    with pytest.raises(BrokerFailed, match=f"--set {setting.partition('=')[0]}: each broker has its own") as refused:
        make_plan(ClusterDirectory(tmp_path), None, StartOptions(brokers, None, 0, (setting,)))
    assert refused.value.exit_code == USAGE


@pytest.mark.parametrize(
    ("brokers", "variable", "value"),
    [(1, "ODRADEK_NODE_ID", "4"), (3, "ODRADEK_NODE_ID", "1"), (3, "ODRADEK_LOG_DIRS", "/data")],
)
def test_variable_that_differs_between_brokers_is_refused_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brokers: int, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BrokerFailed, match=f"{variable} in the environment: each broker has its own") as refused:
        make_plan(ClusterDirectory(tmp_path), None, StartOptions(brokers, None, 0))
    assert refused.value.exit_code == USAGE


@pytest.mark.parametrize("setting", ["broker.id=1", "log.dir=/data"])
def test_other_name_of_a_property_that_the_cluster_sets_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    cluster, name = ClusterDirectory(tmp_path), setting.partition("=")[0]
    with pytest.raises(BrokerFailed, match=f"--set {name}: without effect, because "):
        make_plan(cluster, None, StartOptions(1, None, 0, (setting,)))
    with pytest.raises(BrokerFailed, match=f"--broker 1:{setting}: the cluster sets "):
        make_plan(cluster, None, StartOptions(1, None, 0, broker_settings=((1, setting),)))
    monkeypatch.setenv(variable_name(name), "1")
    with pytest.raises(BrokerFailed, match="in the environment: without effect, because "):
        make_plan(cluster, None, StartOptions(1, None, 0))


def test_variable_that_differs_between_brokers_is_refused_at_the_start_of_single_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_LOG_DIRS", "/data")
    monkeypatch.setattr(launch, "BrokerProcess", lambda _: pytest.fail("a broker was started"))
    with pytest.raises(BrokerFailed, match="ODRADEK_LOG_DIRS in the environment: each broker has its own"):
        launch.launch(ClusterDirectory(tmp_path), ClusterState(plan(3)), [2], None)
    assert list(tmp_path.iterdir()) == []


def test_setting_of_one_broker_overrides_that_of_all_and_is_kept_in_the_directory(tmp_path: Path) -> None:
    cluster = ClusterDirectory(tmp_path)
    options = StartOptions(2, None, 0, ("broker.rack=x",), broker_settings=((2, "broker.rack=b"),))
    new_plan, ports = make_plan(cluster, None, options)
    ports.close()
    assert [value_of(new_plan.settings_of(node_id), "broker.rack") for node_id in (1, 2)] == ["x", "b"]
    cluster.write_state(ClusterState(new_plan))
    state = cluster.read_state()
    assert state is not None
    assert state.plan == new_plan


def test_listeners_of_one_broker_are_added_to_those_of_the_cluster(tmp_path: Path) -> None:
    own = ("listeners=LAN://0.0.0.0:9192", "broker.rack=a")
    both = replace(plan(2), broker_settings={1: list(own)})
    listeners = "PLAINTEXT://127.0.0.1:{},INTERNAL://127.0.0.1:{}"
    assert rows(both.properties(1, tmp_path))["listeners"] == f"{listeners.format(9092, 11092)},LAN://0.0.0.0:9192"
    assert rows(both.properties(2, tmp_path))["listeners"] == listeners.format(9093, 11093)
    assert both.arguments_of(1) == ["broker.rack=a"]
    shared = replace(both, inter_broker={})
    assert shared.arguments_of(1) == list(own)


@pytest.mark.parametrize(
    ("node_id", "setting"), [(3, "broker.rack=b"), (0, "broker.rack=b"), (1, "node.id=7"), (1, "log.dirs=/data")]
)
def test_setting_of_an_unknown_broker_or_of_a_fixed_property_is_refused(
    tmp_path: Path, node_id: int, setting: str
) -> None:
    options = StartOptions(2, None, 0, broker_settings=((node_id, setting),))
    with pytest.raises(BrokerFailed, match=f"--broker {node_id}:{setting}: the ") as refused:
        make_plan(ClusterDirectory(tmp_path), None, options)
    assert refused.value.exit_code == USAGE


@pytest.mark.parametrize("text", ["broker.rack=b", "x:broker.rack=b", "1:broker.rack", "1=broker.rack:b"])
def test_value_of_the_option_broker_needs_node_id_name_and_value(text: str) -> None:
    result = CliRunner().invoke(app, ["up", "--broker", text])
    assert result.exit_code == USAGE
    assert "write it as N:name=value" in " ".join(result.stderr.split())


@pytest.mark.parametrize("setting", ["log.dirs=/data", "node.id=1"])
def test_single_broker_accepts_a_directory_and_its_own_node_id(tmp_path: Path, setting: str) -> None:
    new_plan, ports = make_plan(ClusterDirectory(tmp_path), None, StartOptions(1, None, 0, (setting,)))
    ports.close()
    assert setting in new_plan.settings


def test_directory_without_a_node_id_in_its_name_is_not_a_broker(tmp_path: Path) -> None:
    for name in ("broker-2", "broker-\N{SUPERSCRIPT TWO}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").touch()
    assert ClusterDirectory(tmp_path).brokers_with_data() == [2]


@pytest.mark.parametrize(
    ("command", "default"),
    [
        ("up", "as in the directory, or 3"),
        ("up", "as in the directory, or 127.0.0.1"),
        ("up", "as in the directory, or 9092"),
        ("status", "--watch on a terminal"),
        ("produce", "one record per line of standard input"),
        ("produce", "by hash of the key, or round robin"),
    ],
)
def test_help_shows_the_default(command: str, default: str) -> None:
    """Square brackets in a help text are markup, so a default must be escaped to be shown."""
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300", "NO_COLOR": "1"})
    assert f"[default: ({default})]" in result.stdout


def test_the_version_is_shown_with_its_commit() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"odradek {__version__} (commit {source_commit()})\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "192.0.2.1"])
def test_metrics_are_on_the_loopback_address_whatever_the_listeners(host: str) -> None:
    with_metrics = replace(plan(1, host), metrics={1: 10092})
    assert rows(with_metrics.properties(1, DATA))["odradek.metrics.listener"] == "127.0.0.1:10092"
    assert with_metrics.metrics_url(1) == "http://127.0.0.1:10092/metrics"


@pytest.mark.parametrize(
    ("listener", "url"),
    [
        (":9404", "http://127.0.0.1:9404/metrics"),
        ("0.0.0.0:9404", "http://127.0.0.1:9404/metrics"),
        ("192.0.2.1:9404", "http://192.0.2.1:9404/metrics"),
        ("192.0.2.1:0", None),
        ("", None),
    ],
)
def test_url_of_configured_metrics_has_the_host_of_their_listener(listener: str, url: str | None) -> None:
    configured = replace(plan(1, "192.0.2.7"), settings=[f"odradek.metrics.listener={listener}"])
    assert configured.metrics_url(1) == url
