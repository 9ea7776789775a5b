"""What brokers of a local cluster are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from odradek import __version__
from odradek.__main__ import app
from odradek.local.directory import ClusterDirectory
from odradek.local.launch import StartOptions, make_plan, new_cluster_id
from odradek.local.plan import Plan
from odradek.local.processes import USAGE, BrokerFailed
from odradek.source_commit import source_commit

DATA = Path("/data")


def plan(brokers: int, host: str = "127.0.0.1") -> Plan:
    return Plan("q7cB0kFhTx2nUoWcD4vJ8g", host, {number: 9091 + number for number in range(1, brokers + 1)})


def rows(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize(
    ("brokers", "voters", "majority"), [(1, 1, 1), (2, 1, 1), (3, 3, 2), (4, 3, 2), (5, 5, 3), (6, 5, 3), (9, 5, 3)]
)
def test_the_voters_are_odd_and_at_most_five(brokers: int, voters: int, majority: int) -> None:
    assert plan(brokers).voters == list(range(1, voters + 1))
    assert plan(brokers).majority == majority


def test_three_brokers_replicate_and_fewer_cannot() -> None:
    told = rows(plan(3).properties(2, DATA))
    assert told == {
        "node.id": "2",
        "listeners": "PLAINTEXT://127.0.0.1:9093",
        "log.dirs": "/data",
        "odradek.cluster.id": "q7cB0kFhTx2nUoWcD4vJ8g",
        "controller.quorum.voters": "1@127.0.0.1:9092,2@127.0.0.1:9093,3@127.0.0.1:9094",
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
def test_nobody_is_told_to_connect_to_every_interface(host: str, listener: str, endpoint: str) -> None:
    told = rows(plan(1, host).properties(1, DATA))
    assert (told["listeners"], told["controller.quorum.voters"]) == (listener, f"1@{endpoint}")
    assert plan(1, host).bootstrap == endpoint


def test_cluster_ids_are_as_kafka_makes_them() -> None:
    made = {new_cluster_id() for _ in range(300)}
    assert len(made) == 300
    assert all(len(one) == 22 and not one.startswith("-") for one in made)


@pytest.mark.parametrize(
    ("brokers", "setting"), [(1, "node.id=4"), (3, "node.id=4"), (3, "listeners=A://:9"), (3, "log.dirs=/data")]
)
def test_what_each_broker_has_for_itself_is_not_set_for_all(tmp_path: Path, brokers: int, setting: str) -> None:
    with pytest.raises(BrokerFailed, match=f"--set {setting.partition('=')[0]}: each broker has its own") as refused:
        make_plan(ClusterDirectory(tmp_path), None, StartOptions(brokers, None, 0, (setting,)))
    assert refused.value.exit_code == USAGE


@pytest.mark.parametrize(
    ("brokers", "variable", "value"),
    [(1, "ODRADEK_NODE_ID", "4"), (3, "ODRADEK_NODE_ID", "1"), (3, "ODRADEK_LOG_DIRS", "/data")],
)
def test_nor_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brokers: int, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BrokerFailed, match=f"{variable} in the environment: each broker has its own") as refused:
        make_plan(ClusterDirectory(tmp_path), None, StartOptions(brokers, None, 0))
    assert refused.value.exit_code == USAGE


@pytest.mark.parametrize("setting", ["log.dirs=/data", "node.id=1"])
def test_one_broker_alone_may_be_given_a_directory_and_the_id_that_it_has(tmp_path: Path, setting: str) -> None:
    made, held = make_plan(ClusterDirectory(tmp_path), None, StartOptions(1, None, 0, (setting,)))
    held.close()
    assert setting in made.settings


def test_a_directory_beside_the_others_is_no_broker(tmp_path: Path) -> None:
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
def test_what_holds_unasked_is_in_the_help(command: str, default: str) -> None:
    """Square brackets in a help text are markup, and not shown."""
    said = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300", "NO_COLOR": "1"})
    assert f"[default: ({default})]" in said.stdout


def test_the_version_is_shown_with_its_commit() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.stdout) == (0, f"odradek {__version__} (commit {source_commit()})\n")
