"""Output of ``odradek status`` if brokers do not respond."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek.client import BrokerDescription, ClusterStatus
from odradek.client.errors import ConnectionLost
from odradek.commands import status, status_rows
from odradek.commands.application import app
from odradek.commands.status import show_tables
from odradek.commands.status_rows import NAMED_MAX, TRANSACTIONS, UNKNOWN, broker_rows, status_values, warnings
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.recovery import Recovery
from tests.unit.odradek.local.test_directory import ENDED, PLAN, own_process

if TYPE_CHECKING:
    from pathlib import Path


def test_status_of_a_stopped_cluster_is_unknown(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {}, [1, 2, 3]))
    result = CliRunner().invoke(app, ["status", "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr == f"stopped; start it with: odradek up --dir {tmp_path}\n"
    assert "partitions: unknown, no broker responds" in result.stdout
    assert "open transactions: unknown, no response from broker 1, 2, 3" in result.stdout


@pytest.mark.parametrize("as_json", [False, True])
def test_brokers_that_do_not_respond_are_shown_with_their_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    def no_response(*_arguments: object, **_settings: object) -> None:
        raise ConnectionLost("the broker at 127.0.0.1:9092 sent no response within 5 s; is it running?")

    monkeypatch.setattr(status, "attempt", no_response)
    monkeypatch.setattr(status_rows, "recovery_of", lambda _url: Recovery(3, 8))
    own = own_process()
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {1: own, 2: own, 3: own}, [1, 2, 3]))
    result = CliRunner().invoke(app, ["status", "--dir", str(tmp_path), *(["--json"] if as_json else [])])
    assert result.exit_code == 1
    assert result.stdout.count("recovering 3 of 8 logs") == 3
    assert "sent no response within 5 s" in result.stderr


@pytest.mark.parametrize("running", [{}, {1: ENDED, 2: ENDED, 3: ENDED}])
def test_unknown_values_are_null_in_json(tmp_path: Path, running: dict[int, object]) -> None:
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, running, [1, 2, 3]))  # type: ignore[arg-type]
    result = CliRunner().invoke(app, ["status", "--dir", str(tmp_path), "--json"])
    shown = json.loads(result.stdout)
    unknown = [shown[name] for name in ("controller_id", "partitions", "under_replicated", "transactions")]
    assert unknown == [None] * 4
    assert shown["unreachable"] == [1, 2, 3]
    assert result.stderr.startswith("majority lost: 0 of 3 voters run" if running else "stopped; ")


@pytest.mark.parametrize(
    ("transactions", "unreachable", "expected_line"),
    [
        ([], [], "no open transactions"),
        (["t-id"], [], ""),
        (["t-id"], [1, 3], "open transactions: 1 or more, no response from broker 1, 3"),
        (None, [1, 3], "open transactions: unknown, no response from broker 1, 3"),
    ],
)
def test_open_transactions_are_complete_or_the_output_names_the_unreachable_brokers(
    capsys: pytest.CaptureFixture[str], transactions: list[str] | None, unreachable: list[int], expected_line: str
) -> None:
    rows = None if transactions is None else [dict.fromkeys(TRANSACTIONS.table, name) for name in transactions]
    values = {**UNKNOWN, "partitions": [], "groups": [], "under_replicated": []}
    show_tables([], {**values, "transactions": rows, "unreachable": unreachable})
    output = capsys.readouterr().out
    lines = output.splitlines()
    assert [line for line in lines if "open transactions" in line] == ([expected_line] if expected_line else [])
    assert output.count("t-id") == (len(TRANSACTIONS.table) if transactions else 0)


def test_warnings_name_offline_directories_and_some_offline_partitions() -> None:
    offline = [f"t-{index}" for index in range(NAMED_MAX + 2)]
    broker = BrokerDescription(1, "a", 1, None, fenced=False, offline_log_dirs=["/data2"], offline_partitions=offline)
    values = status_values(ClusterStatus("id", 1, [1], [broker], [], [], [], [], {}))
    assert warnings(values) == [
        "broker 1: log directory /data2 is offline",
        "broker 1: offline partitions t-0, t-1, t-2, t-3, t-4, and 2 more",
    ]
    assert broker_rows(None, values)[0]["offline_partitions"] == offline


@pytest.mark.parametrize(("unreachable", "transactions"), [({}, []), ({2: "no response"}, None)])
def test_status_has_the_same_keys_as_an_unknown_status(
    unreachable: dict[int, str], transactions: list[str] | None
) -> None:
    found = ClusterStatus("id", 1, [1], [], [], [], [], [], unreachable)
    assert list(status_values(found)) == list(UNKNOWN)
    assert status_values(found)["transactions"] == transactions
    assert status_values(found)["unreachable"] == list(unreachable)
