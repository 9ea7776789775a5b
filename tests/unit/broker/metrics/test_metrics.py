"""Metrics: counts of errors, histograms, lag of the event loop, the Prometheus text and its bounds."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.broker.dispatch.error_counts import counter_of
from odradek.broker.dispatch.request_metrics import BOUNDS_US, Histogram
from odradek.broker.metrics import dashboard, scrape
from odradek.broker.metrics.endpoint import REQUEST_BYTES_MAX
from odradek.broker.metrics.families import FAMILIES, Kind
from odradek.broker.metrics.loop_lag import INTERVAL_S, LoopLag
from odradek.broker.node import CannotStartError
from odradek.coordinator.txn.state import Transaction
from odradek.coordinator.txn.stats import TxnStats
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.protocol.messages.heartbeat import HeartbeatResponse
from odradek.protocol.txn_state import TxnState
from odradek.simulation.environment.loop import SimLoop
from tests.support.node_cluster import NodeCluster


def counted(response: Any) -> dict[int, int]:
    counts: dict[int, int] = {}
    counter_of(type(response))(response, counts)
    return counts


def test_errors_are_counted_at_every_level_of_a_response() -> None:
    assert counted(HeartbeatResponse(error_code=27)) == {27: 1}
    rows = [PartitionData(0, 0), PartitionData(1, 3), PartitionData(2, 3)]
    assert counted(FetchResponse(error_code=70, responses=[FetchableTopicResponse("t", partitions=rows)])) == {
        70: 1,
        3: 2,
    }
    inner = AddPartitionsToTxnTopicResult("t", [AddPartitionsToTxnPartitionResult(0, 48)])
    response = AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult("id", [inner])])
    assert counted(response) == {48: 1}
    assert counted(FetchResponse()) == {}


def test_time_equal_to_a_bound_is_in_the_bucket_of_that_bound() -> None:
    histogram = Histogram()
    for us in (0, BOUNDS_US[0], BOUNDS_US[0] + 1, BOUNDS_US[-1] + 1):
        histogram.observe(us)
    assert histogram.buckets[:2] == [2, 1]
    assert histogram.buckets[-1] == 1
    assert (histogram.count, histogram.sum_us) == (4, 2 * BOUNDS_US[0] + BOUNDS_US[-1] + 2)


def test_blocking_callback_is_measured_as_lag() -> None:
    blocked_s = 3.0
    loop = SimLoop(Random(7))

    def block() -> None:
        loop._now += blocked_s  # time passes without a turn of the event loop

    async def measure() -> LoopLag:
        lag = LoopLag()
        await asyncio.sleep(INTERVAL_S * 2.5)
        assert lag.times.count == 2
        assert lag.take_max() < 1_000
        loop.call_soon(block)
        await asyncio.sleep(INTERVAL_S)
        lag.close()
        await asyncio.sleep(INTERVAL_S * 5)
        return lag

    lag = loop.run_until_complete(measure())
    loop.close()
    lag_us = lag.take_max()
    assert (blocked_s - INTERVAL_S) * 1e6 <= lag_us <= blocked_s * 1e6
    assert lag.times.count == 3, "one measurement was late, and there was none after close"
    assert lag.take_max() == 0


def test_decisions_of_the_coordinator_are_counted_by_outcome() -> None:
    stats = TxnStats()
    new = Transaction("id")
    ongoing = Transaction("id", 7, 0, 1_000, TxnState.ONGOING, start_ms=0)

    def after(state: TxnState, epoch: int = 1, update_ms: int = 500) -> Transaction:
        return Transaction("id", 7, epoch, 1_000, state, start_ms=0, update_ms=update_ms)

    stats.decided(None, after(TxnState.EMPTY))
    stats.decided(new, after(TxnState.EMPTY))
    assert stats == TxnStats()
    stats.decided(ongoing, after(TxnState.PREPARE_COMMIT))
    stats.decided(ongoing, after(TxnState.PREPARE_ABORT))
    stats.decided(ongoing, after(TxnState.PREPARE_ABORT, update_ms=1_001))
    stats.decided(after(TxnState.EMPTY, 1), after(TxnState.EMPTY, 2))
    stats.decided(after(TxnState.PREPARE_ABORT), after(TxnState.COMPLETE_ABORT))
    assert stats == TxnStats(committed=1, aborted=2, timed_out=1, fenced=1)
    kept = replace(ongoing, next_producer_id=7, next_producer_epoch=1)
    stats.decided(ongoing, kept)
    stats.decided(kept, replace(kept, next_producer_epoch=2))
    stats.decided(kept, kept)
    assert stats.fenced == 3


def test_names_follow_the_conventions_of_prometheus_and_kafka() -> None:
    for family in FAMILIES.values():
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER), family.name
        assert family.name.startswith("kafka_") == (family.kafka is not None), family.name


def test_dashboard_contains_only_existing_metrics() -> None:
    assert dashboard.unknown_names() == []


async def get(port: int, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> tuple[bytes, str]:
    """Return the status line and the body of a response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.partition(b"\r\n")[0], body.decode()


def rows_of(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


async def test_unexpected_exception_of_background_work_is_counted(tmp_path: Path) -> None:
    async def fail() -> None:
        raise LookupError("a bug")

    unexpected: list[str] = []
    nodes = NodeCluster(tmp_path, 1, odradek_metrics_listener="127.0.0.1:0")
    try:
        await nodes.start()
        node = nodes.nodes[1]
        node._on_unexpected._report = lambda where, _exception: unexpected.append(where)
        with pytest.raises(LookupError):
            await node.tasks.spawn(fail(), "retention")
        _, text = await get(node.metrics_port)
        assert rows_of(text)["odradek_unexpected_exceptions_total"] == 1
        assert unexpected == ["retention"]
    finally:
        await nodes.stop()


async def test_scrape_returns_the_requests_records_and_roles_of_a_node(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1, odradek_metrics_listener="127.0.0.1:0")
    try:
        await nodes.start()
        await nodes.create("t", [1])
        assert await nodes.produce("t", b"one", b"two") is ErrorCode.NONE
        fetch = FetchRequest(
            min_bytes=1,
            max_bytes=1_000,
            topics=[FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1_000)])],
        )
        [topic] = (await nodes.call(1, fetch, 12)).responses
        assert topic.partitions[0].records
        port = nodes.nodes[1].metrics_port
        status, text = await get(port)
        assert status == b"HTTP/1.1 200 OK"
        rows = rows_of(text)
        assert rows['kafka_server_brokertopicmetrics_messagesin_total{topic="t"}'] == 2
        assert rows['kafka_server_brokertopicmetrics_bytesout_total{topic="t"}'] > 0
        assert rows['kafka_network_requestmetrics_requests_total{request="Produce"}'] == 1
        assert rows['kafka_network_requestmetrics_totaltime_seconds_count{request="Produce"}'] == 1
        assert rows['kafka_log_log_logendoffset{partition="0",topic="t"}'] == 2
        assert rows['kafka_cluster_partition_laststableoffsetlag{partition="0",topic="t"}'] == 0
        assert rows["kafka_controller_kafkacontroller_activecontrollercount"] == 1
        assert rows['odradek_transactions{state="Ongoing"}'] == 0
        assert rows["odradek_transactions_in_doubt"] == rows["odradek_transactions_oldest_in_doubt_seconds"] == 0
        assert rows['odradek_membership_datagrams_dropped_total{reason="foreign"}'] == 0
        assert rows['odradek_coordinator_blocked_ids{topic="__transaction_state"}'] == 0
        names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        for family in FAMILIES.values():
            if family.labels and family.name not in names:
                assert {"error", "group", "protocol", "listener"} & set(family.labels), family.name
    finally:
        await nodes.stop()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"x" * (REQUEST_BYTES_MAX + 1), b"400"),
    ],
)
async def test_request_other_than_a_scrape_is_refused_with_its_status(
    tmp_path: Path, request_bytes: bytes, status: bytes
) -> None:
    nodes = NodeCluster(tmp_path, 1, odradek_metrics_listener="127.0.0.1:0")
    try:
        await nodes.start()
        status_line, _ = await get(nodes.nodes[1].metrics_port, request_bytes)
        assert status_line.split()[1] == status
    finally:
        await nodes.stop()


async def test_occupied_port_raises_an_error_with_the_property_to_change(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    nodes = NodeCluster(tmp_path, 1, odradek_metrics_listener=f"127.0.0.1:{port}")
    try:
        with pytest.raises(CannotStartError) as failed:
            await nodes.start()
        assert f"{port} (metrics)" in str(failed.value)
        assert "odradek.metrics.listener" in str(failed.value)
    finally:
        await nodes.stop()
        server.close()


async def test_rows_of_topics_and_partitions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "TOPICS_MAX", 1)
    monkeypatch.setattr(scrape, "PARTITIONS_MAX", 2)
    nodes = NodeCluster(tmp_path, 1, odradek_metrics_listener="127.0.0.1:0")
    try:
        await nodes.start()
        for name in ("a", "b", "c"):
            await nodes.create(name, [1])
        assert await nodes.produce("b", b"busy") is ErrorCode.NONE
        assert await nodes.produce("c", b"") is ErrorCode.NONE
        rows = rows_of((await get(nodes.nodes[1].metrics_port))[1])
        topics = [name for name in rows if name.startswith("kafka_server_brokertopicmetrics_messagesin_total")]
        assert len(topics) == 2
        assert sum(rows[name] for name in topics) == 2, "the sum of the remaining topics is complete"
        assert any(scrape.OTHERS in name for name in topics)
        assert len([name for name in rows if name.startswith("kafka_log_log_size")]) == 2
        assert rows['odradek_metrics_left_out{kind="topic"}'] == 2
        assert rows['odradek_metrics_left_out{kind="partition"}'] == 1
    finally:
        await nodes.stop()
