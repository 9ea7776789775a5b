"""`odradek up`: its options become properties of the brokers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from odradek.broker.config.sources import load
from odradek.commands import up
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import StartOptions, make_plan
from odradek.local.plan import Plan
from odradek.local.processes import BrokerFailed
from odradek.local.secured import prepare
from odradek.local.security import Mode, Security
from tests.unit.odradek.local.test_directory import own_process


@pytest.mark.parametrize("two_phase_commit", [True, False])
def test_two_phase_commit_is_a_property_of_all_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_phase_commit: bool
) -> None:
    started: list[StartOptions] = []

    def refuse(_cluster: object, _state: object, options: StartOptions) -> NoReturn:
        started.append(options)
        raise BrokerFailed("no start in this test")

    monkeypatch.setattr(up, "make_plan", refuse)
    with pytest.raises(typer.Exit):
        up.up(directory=tmp_path / "cluster", settings=["num.partitions=6"], two_phase_commit=two_phase_commit)
    config = load(environment={}, assignments=["log.dirs=/data", *started[0].settings])
    assert (config.num_partitions, config.transaction_two_phase_commit_enable) == (6, two_phase_commit)


@pytest.mark.parametrize(
    "repeated",
    [
        {},
        {"settings": ("num.partitions=6", "broker.rack=x")},
        {"settings": ("broker.rack=x", "num.partitions = 6")},
        {"broker_settings": ((1, "broker.rack=a"), (2, "broker.rack=b"), (1, "num.partitions=7"))},
        {"broker_settings": ((2, "broker.rack=b"), (1, "num.partitions=7"), (1, "broker.rack=a"))},
    ],
)
def test_repeated_start_with_the_same_settings_in_any_order_is_no_conflict(
    tmp_path: Path, repeated: dict[str, Any]
) -> None:
    first = StartOptions(
        settings=("num.partitions=6", "broker.rack=x"),
        broker_settings=((1, "broker.rack=a"), (2, "broker.rack=b"), (1, "num.partitions=7")),
    )
    cluster = ClusterDirectory(tmp_path)
    plan, ports = make_plan(cluster, None, StartOptions(2, None, 0, first.settings, None, first.broker_settings))
    ports.close()
    cluster.write_state(ClusterState(plan, {1: own_process(), 2: own_process()}))
    state = cluster.read_state()
    assert state is not None
    up.refuse_conflicting_options(cluster, state, StartOptions(**repeated), may_run=True)


@pytest.mark.parametrize(
    "other",
    [
        {"settings": ("num.partitions=6",)},
        {"settings": ("num.partitions=6", "broker.rack=y")},
        {"broker_settings": ((2, "broker.rack=b"),)},
        {"broker_settings": ((1, "broker.rack=a"), (2, "broker.rack=c"))},
    ],
)
def test_repeated_start_with_other_settings_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    plan = Plan(
        *("id", "127.0.0.1", {1: 9092, 2: 9093}, ["num.partitions=6", "broker.rack=x"]),
        broker_settings={1: ["broker.rack=a"], 2: ["broker.rack=b"]},
    )
    state = ClusterState(plan, {1: own_process(), 2: own_process()})
    with pytest.raises(BrokerFailed, match="holds a running cluster with other settings"):
        up.refuse_conflicting_options(ClusterDirectory(tmp_path), state, StartOptions(**other), may_run=True)


@pytest.mark.parametrize(
    ("security", "file", "rights"),
    [
        (Security(Mode.SASL_SSL), "client-alice.properties",
         ["alice may use topics, groups and transactional ids whose names begin with alice-",
          "admin may do everything, for example change users and ACLs"]),
        (Security(Mode.SASL_SSL, ("bob", "carol")), "client-carol.properties",
         ["carol may use topics, groups and transactional ids whose names begin with carol-",
          "admin may do everything, for example change users and ACLs"]),
        (Security(Mode.MTLS, ()), "client-admin.properties",
         ["admin may do everything, for example change users and ACLs"]),
        (Security(Mode.SSL), "client.properties", []),
    ],
)  # fmt: skip
def test_secured_cluster_names_a_file_that_it_makes_and_the_rights_of_its_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], security: Security, file: str, rights: list[str]
) -> None:
    plan = Plan("q7cB0kFhTx2nUoWcD4vJ8g", "127.0.0.1", {1: 9092}, security=security)
    up.print_ready(ClusterDirectory(tmp_path), plan, ends="Ctrl-C")
    lines = capsys.readouterr().out.splitlines()
    assert ("each user" in lines[1]) == bool(rights)
    shown = Path(lines[2].strip())
    assert shown.name == file
    assert lines[6:] == rights
    prepare(tmp_path, plan, [1], may_create=True, now=datetime.now(UTC))
    assert shown.is_file()
