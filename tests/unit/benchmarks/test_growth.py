"""Measurement of long callbacks, and the table of `make growth`."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest

from benchmarks.growth import SIZES, TOPIC_PARTITIONS, creation_requests, is_balanced
from benchmarks.growth_chart import table
from benchmarks.measured_broker import RECORD_NS, VARIABLE, MeasuredLoop, read_callbacks
from benchmarks.recording import GrowthRun
from odradek.cluster.controller.slices import RECORDS_PER_REQUEST_MAX

if TYPE_CHECKING:
    from pathlib import Path


def work() -> None:
    """Use more CPU time than RECORD_NS."""
    end_ns = time.thread_time_ns() + RECORD_NS
    while time.thread_time_ns() <= end_ns:
        pass


class Busy(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        work()
        transport.close()


async def busy() -> None:
    work()
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(work)
    loop.call_later(0, done.set_result, None)
    await done
    await loop.create_datagram_endpoint(Busy, local_addr=("127.0.0.1", 0))


def test_long_callbacks_are_recorded_with_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(busy())
    assert [file.name for file in tmp_path.iterdir()] == [str(os.getpid())]
    found = read_callbacks(tmp_path.iterdir(), 0)
    names = {one.name.partition(":")[0] for one in found}
    assert {"busy", "work", "Busy.connection_made"} <= names
    assert all(one.cpu_ms >= RECORD_NS / 1_000_000 for one in found)
    assert not read_callbacks(tmp_path.iterdir(), time.monotonic())


def test_the_table_has_a_column_per_run_and_a_row_per_figure() -> None:
    runs = [
        GrowthRun("Odradek", 1_000, {"gap s": 1.0}),
        GrowthRun("Odradek", 5_000, {"gap s": 2.0, "clean stop: s": 3.0}),
    ]
    rows = table(runs).splitlines()
    assert rows[0] == "| figure | Odradek 1,000 | Odradek 5,000 | target at 10,000 |"
    assert rows[2:] == ["| gap s | 1.00 | 2.00 |  |", "| clean stop: s |  | 3.00 | 3 |"]


@pytest.mark.parametrize("partitions", [1, TOPIC_PARTITIONS + 1, *SIZES])
def test_partitions_are_created_in_requests_that_the_controller_permits(partitions: int) -> None:
    requests = list(creation_requests(partitions))
    assert sum(topic.num_partitions for topics in requests for topic in topics) == partitions
    assert all(
        len(topics) + sum(topic.num_partitions for topic in topics) <= RECORDS_PER_REQUEST_MAX for topics in requests
    )
    assert all(topic.num_partitions <= TOPIC_PARTITIONS for topics in requests for topic in topics)


@pytest.mark.parametrize(("led_by_others", "expected"), [(0, True), (1, True), (2, False), (10, False)])
def test_leaders_are_balanced_if_each_broker_leads_nine_tenths_of_its_partitions(
    led_by_others: int, expected: bool
) -> None:
    of_broker_1 = [(2, 1)] * led_by_others + [(1, 1)] * (10 - led_by_others)
    assert is_balanced([*of_broker_1, *[(2, 2)] * 100]) is expected
