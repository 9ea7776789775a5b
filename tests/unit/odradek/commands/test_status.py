"""What ``odradek status`` says when brokers do not answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek.__main__ import app
from odradek.client import ClusterStatus
from odradek.commands.status import show_tables
from odradek.commands.status_rows import TRANSACTION_COLUMNS, UNKNOWN, status_values
from odradek.local.directory import ClusterDirectory, ClusterState
from tests.unit.odradek.local.test_directory import GONE, PLAN

if TYPE_CHECKING:
    from pathlib import Path


def test_a_stopped_cluster_is_stopped_and_nothing_is_claimed_of_it(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {}, [1, 2, 3]))
    said = CliRunner().invoke(app, ["status", "--dir", str(tmp_path)])
    assert said.exit_code == 1
    assert said.stderr == f"stopped; start it with: odradek up --dir {tmp_path}\n"
    assert "partitions: unknown, no broker runs" in said.stdout
    assert "open transactions: unknown, no response from broker 1, 2, 3" in said.stdout


@pytest.mark.parametrize("running", [{}, {1: GONE, 2: GONE, 3: GONE}])
def test_what_is_not_known_is_null(tmp_path: Path, running: dict[int, object]) -> None:
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, running, [1, 2, 3]))  # type: ignore[arg-type]
    said = CliRunner().invoke(app, ["status", "--dir", str(tmp_path), "--json"])
    found = json.loads(said.stdout)
    unknown = [found[name] for name in ("controller", "partitions", "under_replicated", "transactions")]
    assert unknown == [None] * 4
    assert found["unreachable"] == [1, 2, 3]
    assert said.stderr.startswith("majority lost: 0 of 3 voters run" if running else "stopped; ")


@pytest.mark.parametrize(
    ("transactions", "unreachable", "said"),
    [
        ([], [], "no open transactions"),
        (["t-id"], [], ""),
        (["t-id"], [1, 3], "open transactions: 1 or more, no response from broker 1, 3"),
        (None, [1, 3], "open transactions: unknown, no response from broker 1, 3"),
    ],
)
def test_the_open_transactions_that_are_shown_are_all_or_it_says_who_may_know_of_more(
    capsys: pytest.CaptureFixture[str], transactions: list[str] | None, unreachable: list[int], said: str
) -> None:
    found = None if transactions is None else [dict.fromkeys(TRANSACTION_COLUMNS, name) for name in transactions]
    answer = {**UNKNOWN, "partitions": [], "groups": [], "under_replicated": []}
    show_tables([], {**answer, "transactions": found, "unreachable": unreachable})
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert [line for line in lines if "open transactions" in line] == ([said] if said else [])
    assert shown.count("t-id") == (len(TRANSACTION_COLUMNS) if transactions else 0)


@pytest.mark.parametrize(("unreachable", "transactions"), [({}, []), ({2: "no response"}, None)])
def test_the_status_of_a_cluster_has_the_names_of_an_unknown_one(
    unreachable: dict[int, str], transactions: list[str] | None
) -> None:
    status = ClusterStatus(1, [], [], [], [], [], unreachable)
    assert list(status_values(status)) == list(UNKNOWN)
    assert status_values(status)["transactions"] == transactions
    assert status_values(status)["unreachable"] == list(unreachable)
