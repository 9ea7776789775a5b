"""`odradek up`: its options become properties of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
import typer

from odradek.broker.config.sources import load
from odradek.commands import up
from odradek.local.processes import BrokerFailed

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
