"""`odradek health`: problems of a cluster with their remedies, and exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from odradek.client import BrokerDescription, ClusterStatus, PartitionDescription
from odradek.commands import health
from odradek.commands.application import app
from odradek.commands.health import LISTED_MAX, problems_of
from odradek.commands.logs import Tail
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def partition(index: int, leader: int, isr: list[int]) -> PartitionDescription:
    return PartitionDescription("t", index, False, leader, 1, [1, 2], isr, 0, 0, 0, 0)


def status(*, controller: int | None = 1, unreachable: dict[int, str] | None = None, behind: int = 1) -> ClusterStatus:
    brokers = [BrokerDescription(1, "a", 1, None, fenced=False), BrokerDescription(2, "b", 1, None, fenced=True)]
    partitions = [partition(0, -1, [2]), *(partition(index, 1, [1]) for index in range(1, behind + 1))]
    names = [f"t-{row.partition}" for row in partitions]
    return ClusterStatus("id", controller, [1], brokers, partitions, names, [], [], unreachable or {})


def test_each_problem_names_the_broker_or_partition_and_what_to_do() -> None:
    rows = [f"{row['problem']}: {row['remedy']}" for row in problems_of(status(controller=None))]
    assert rows == [
        "there is no active controller: start a majority of the voters, which are broker 1",
        "broker 2 is fenced: start it; if it will not return: odradek brokers unregister 2",
        (
            "partition t-0 has no leader: start broker 2; if that is not possible, elect a replica that may "
            "lack records: odradek partitions elect t:0 --unclean"
        ),
        "partition t-1 lacks replica 2: start broker 2",
    ]


def test_remedies_depend_on_what_is_known_of_the_brokers() -> None:
    brokers = [BrokerDescription(node, f"host-{node}", 9, None, fenced=node == 4) for node in (1, 2, 3, 4)]
    partitions = [
        PartitionDescription("t", 0, False, -1, 1, [1, 2], [1], 0, 0, 0, 0),
        PartitionDescription("t", 1, False, -1, 1, [4, 5], [], 0, 0, 0, 0),
        PartitionDescription("t", 2, False, 1, 1, [1, 2, 3, 4, 5], [1, 3], 0, 0, 0, 0),
    ]
    found = ClusterStatus("id", None, None, brokers, partitions, ["t-2"], [], [], {3: "no response"})
    *rows, last = (f"{row['problem']}: {row['remedy']}" for row in problems_of(found))
    assert rows == [
        (
            "the active controller is not known: start a majority of the voters, or log in as a user with DESCRIBE "
            "on the cluster"
        ),
        "broker 3 does not respond (no response): see its log, and whether this host reaches host-3:9",
        "broker 4 is fenced: start it; if it will not return: odradek brokers unregister 4",
        "partition t-0 has no leader: see the log of broker 1 for a failed log directory",
        (
            "partition t-1 has no leader: start one of the brokers 4, 5; if that is not possible, elect a replica "
            "that may lack records: odradek partitions elect t:1 --unclean"
        ),
    ]
    assert last.split("; ") == [
        "partition t-2 lacks replicas 2, 3, 4, 5: start broker 5 with the listener that this command uses",
        "start broker 4",
        "see the log of broker 3",
        "wait for broker 2 to catch up, or see the log there",
    ]


def test_offline_directories_and_partitions_are_problems_with_their_broker() -> None:
    broker = BrokerDescription(
        1, "a", 1, None, fenced=False, offline_log_dirs=["/data2"], offline_partitions=["t-eu-3"]
    )
    rows = problems_of(ClusterStatus("id", 1, [1], [broker], [], [], [], [], {}))
    remedy = "repair its disk, then restart broker 1"
    assert rows == [
        {"node_id": 1, "problem": "broker 1 has an offline log directory, /data2", "remedy": remedy},
        {
            "node_id": 1, "topic": "t-eu", "partition": 3, "problem": "partition t-eu-3 is offline on broker 1",
            "remedy": remedy,
        },
    ]  # fmt: skip


def test_replica_without_an_address_on_the_listener_of_the_command_is_named() -> None:
    brokers = [BrokerDescription(1, "a", 1, None, fenced=False)]
    partitions = [PartitionDescription("t", 0, False, 1, 1, [1, 4], [1, 4], 0, 0, 0, 0)]
    rows = problems_of(ClusterStatus("id", 1, [1], brokers, partitions, ["t-0"], [], [], {}))
    assert [f"{row['problem']}: {row['remedy']}" for row in rows] == [
        "partition t-0 lacks replica 4: start broker 4 with the listener that this command uses"
    ]


def test_exit_codes_are_healthy_unhealthy_and_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CliRunner().invoke(app, ["health", "--json", "--bootstrap", f"127.0.0.1:{free_port()}"])
    printed = json.loads(refused.stdout)
    [problem] = printed["problems"]
    assert (refused.exit_code, printed["healthy"]) == (2, None)
    assert ("Connection refused" in problem["problem"], problem["remedy"]) == (
        True,
        "is it running? see: odradek up --help",
    )
    monkeypatch.setattr(health, "attempt", lambda *_: status(behind=LISTED_MAX))
    unhealthy = CliRunner().invoke(app, ["health"])
    assert unhealthy.exit_code == 1
    assert unhealthy.stdout.endswith("2 more problems; all: odradek health --json\n")
    monkeypatch.setattr(health, "attempt", lambda *_: ClusterStatus("id", 1, [1], [], [], [], [], [], {}))
    healthy = CliRunner().invoke(app, ["health"])
    assert (healthy.exit_code, healthy.stdout) == (0, "healthy: 0 brokers, 0 partitions\n")


def test_lines_fit_80_columns_and_commands_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found = status(controller=None)
    broker = BrokerDescription(1, "a", 1, None, fenced=False, offline_log_dirs=["/data/kafka/disk-2"])
    found = replace(found, brokers=[broker, *found.brokers[1:]], voters=None, unreachable={1: "no response in 5 s"})
    monkeypatch.setattr(health, "attempt", lambda *_: found)
    lines = CliRunner().invoke(app, ["health"]).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "broker 2 is fenced: start it; if it will not return:" in lines
    assert "  odradek brokers unregister 2" in lines
    assert any(line.endswith(" odradek partitions elect t:0 --unclean") for line in lines)
    unwrapped = "\n".join(lines).replace("\n  ", " ").splitlines()
    assert unwrapped == [f"{row['problem']}: {row['remedy']}" for row in problems_of(found)]


def test_error_of_a_check_that_was_not_possible_fits_80_columns() -> None:
    refused = CliRunner().invoke(app, ["health", "--bootstrap", f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("unreachable: ")
    assert max(map(len, refused.stderr.splitlines())) <= 80


def test_invalid_option_has_the_help_as_its_remedy() -> None:
    refused = CliRunner().invoke(app, ["health", "--json", "--bootstrap", "host:99999"])
    [problem] = json.loads(refused.stdout)["problems"]
    assert (refused.exit_code, problem["remedy"]) == (2, "see: odradek health --help")


def test_tail_of_a_log_continues_in_the_file_that_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.log"
    path.write_text("a\nb\nc\nunfinished")
    tail = Tail(path, 2)
    assert list(tail.last) == ["b", "c"]
    with path.open("a") as file:
        file.write(" line\n")
    assert list(tail.read()) == ["unfinished line"]
    path.rename(tmp_path / "broker-1.log.1")
    assert list(tail.read()) == []
    path.write_text("new\n")
    assert list(tail.read()) == ["new"]
    path.write_text("")
    assert list(tail.read()) == []


def test_tail_of_a_log_has_the_lines_that_were_written_before_its_rotation(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.log"
    path.write_text("a\n")
    tail = Tail(path, 1)
    with path.open("a") as file:
        file.write("b\nc\n")
    path.rename(tmp_path / "broker-1.log.1")
    path.write_text("d\n")
    assert [*tail.read(), *tail.read()] == ["b", "c", "d"]
