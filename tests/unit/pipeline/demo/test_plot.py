"""Picture of a demo run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pandas as pd

from odradek.pipeline.demo.plot import write_plot
from odradek.pipeline.demo.run import JobResults
from odradek.pipeline.eos.plan import End, Run
from odradek.pipeline.eos.record import BatchTimes, Record
from odradek.pipeline.faults.broker_kills import BrokerOutage
from odradek.pipeline.flights.plan import BrokerKill, Kill, KillKind, Target
from odradek.pipeline.producer.supervisor import Campaign, ProducerKill

if TYPE_CHECKING:
    from pathlib import Path

START = 1_000.0
AIRLINES = {"AA": "American <Airlines>", "HA": "Hawaiian Airlines"}


def campaign() -> Campaign:
    kills = [ProducerKill(Kill(number, KillKind.TIMED, number, 0.0), number, START + 7 * number, "writing", "", None)
             for number in (1, 2)]  # fmt: skip
    outages = [BrokerOutage(BrokerKill(target, 1, 0.0, 0), 1, START + at, START + at + 4)
               for at, target in ((5, Target.LEADER), (15, Target.COORDINATOR))]  # fmt: skip
    commits = [(START + second, 300) for second in range(30)]
    return Campaign(kills, [], commits, [START + 3, START + 9], outages, 3, START)


def results() -> JobResults:
    groups = [("AA", "EWR", 12.0, 78.0), ("AA", "JFK", 10.0, 66.0), ("HA", "JFK", 5.0, 28.0)]
    delays = pd.DataFrame(groups, columns=["carrier", "origin", "mean", "p95"])
    copies = pd.DataFrame({"batch": [0] * 500 + [1] * 700})
    return JobResults([(START + 5, 1500), (START + 20, 4500)], None, delays, {}, copies)


def test_picture_names_every_curve_band_and_airline_once(tmp_path: Path) -> None:
    record = Record([BatchTimes(1, 0, ended_at=START + 8), BatchTimes(1, 1, ended_at=START + 22)])
    record.ended(Run(1, None, None, End.RANDOM, None, 0.0), START + 12)
    write_plot(tmp_path / "flights.svg", campaign(), record, results(), "0 lost, 0 duplicated", AIRLINES)
    assert (tmp_path / "flights.png").read_bytes().startswith(b"\x89PNG")
    picture = (tmp_path / "flights.svg").read_text()
    texts = re.findall(r"<(?:text|tspan)[^>]*>([^<]+)<", picture)
    for text in (
        "committed by the producer",
        "read by Spark (read_committed)",
        "copied by the exactly-once sink",
        "broker killed, until in sync again",
        "producer killed",
        "driver of the copies killed",
        "transaction aborted (2)",
        "A  leader: 1.00 s",
        "B  coordinator: 1.00 s",
        "1  last event: writing",
        "American &lt;Airlines&gt;",
        "Hawaiian Airlines",
        "from EWR",
        "from JFK",
        "from LGA",
    ):
        assert texts.count(text) == 1, text
    assert not {"AA", "HA"} & set(texts), "carriers have names"
    assert texts.count("0 lost, 0 duplicated") == 1
