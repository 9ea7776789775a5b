"""`odradek up`: its options become properties of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
import typer

from odradek.broker.config.sources import load
from odradek.commands import up
from odradek.local.directory import ClusterDirectory
from odradek.local.plan import Plan
from odradek.local.processes import BrokerFailed
from odradek.local.security import Mode, Security

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.local.launch import StartOptions


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


def test_secured_cluster_states_which_names_a_user_may_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan("q7cB0kFhTx2nUoWcD4vJ8g", "127.0.0.1", {1: 9092}, security=Security(Mode.SASL_SSL))
    up.print_ready(ClusterDirectory(tmp_path), plan)
    allowed = "alice may use topics, groups and transactional ids that begin with alice-"
    assert allowed in capsys.readouterr().out.splitlines()
