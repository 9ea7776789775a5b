"""Tables of the demo in the form that is printed to a file or a pipe."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from rich.console import Console

from odradek.pipeline.demo.__main__ import WIDTH_WITHOUT_TERMINAL
from odradek.pipeline.demo.screen import Screen, delays_table, driver_kills_table, kills_table
from odradek.pipeline.eos.plan import End, Run
from odradek.pipeline.eos.record import BatchTimes, Record
from odradek.pipeline.faults.relay import HeldCommit
from odradek.pipeline.flights.plan import Kill, KillKind
from odradek.pipeline.flights.source import ORIGINS, load_airline_names
from odradek.pipeline.producer.supervisor import ProducerKill
from odradek.protocol.messages.end_txn import EndTxnRequest

if TYPE_CHECKING:
    from rich.table import Table


def delays() -> Table:
    rows = [(carrier, origin, 45_652, 20.5, 131.0) for carrier in load_airline_names() for origin in ORIGINS]
    return delays_table(
        pd.DataFrame(rows, columns=["carrier", "origin", "flights", "mean", "p95"]), load_airline_names()
    )


def kills() -> Table:
    held = HeldCommit(
        EndTxnRequest("id", 1, 0, committed=True), sent_at=1.0, killed_at=1.002, response_at=1.003, error=0
    )
    plan = Kill(1, KillKind.WINDOW, 1, 0.001)
    return kills_table([ProducerKill(plan, 1, 1.0, "committing", "1579.3.797.commit", held)], {"1579.3.797.commit"})


def driver_kills() -> Table:
    record = Record([BatchTimes(1, 12, {"BEGUN": 1.0})])
    record.ended(Run(1, None, None, End.LATE, None, 0.0), 1.0)
    return driver_kills_table(record)


@pytest.mark.parametrize("table", [delays, kills, driver_kills])
def test_tables_fit_the_width_without_a_terminal(table: object) -> None:
    assert callable(table)
    printed = io.StringIO()
    Console(file=printed, width=WIDTH_WITHOUT_TERMINAL).print(table())
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= WIDTH_WITHOUT_TERMINAL == 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed.getvalue(), "no text is shortened"


def test_progress_of_a_whole_run_is_not_shortened() -> None:
    printed = io.StringIO()
    transactions, rows, aborts = 6_936, 336_776, 693
    with Screen(Console(file=printed, width=WIDTH_WITHOUT_TERMINAL), transactions, rows, 5, 3, 2) as screen:
        screen.producer_event({"event": "committed", "hour": transactions - 1})
        for _ in range(aborts):
            screen.producer_event({"event": "aborted"})
        for query in ("rows", "groups"):
            screen.batch(query, rows)
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= WIDTH_WITHOUT_TERMINAL
    assert "6936/6936" in printed.getvalue()
    assert printed.getvalue().count("336776/336776") == 2
    assert "693 aborted" in printed.getvalue()


def test_each_airline_is_one_line_of_the_table() -> None:
    printed = io.StringIO()
    Console(file=printed, width=WIDTH_WITHOUT_TERMINAL).print(delays())
    for name in load_airline_names().values():
        [line] = [line for line in printed.getvalue().splitlines() if line.strip().startswith(name)]
        assert line.count("45,652") == len(ORIGINS)
