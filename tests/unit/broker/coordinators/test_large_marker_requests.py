"""WriteTxnMarkers requests with many markers and partitions are handled in parts."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis import write_txn_markers
from odradek.broker.apis.write_txn_markers import MARKERS_PER_PART
from odradek.broker.coordinators import marker_writer
from odradek.broker.dispatch.large_requests import LargeRequests
from odradek.broker.dispatch.request_metrics import ApiMetrics
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.listener import BROKER, CLIENT
from odradek.protocol.codec import SlicedEncoding, decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.schema import Packed
from tests.support.data_rig import Rig, outcome

E = ErrorCode
PARTITIONS = 3
UNLIMITED = 1 << 40
RESPONSE_HEADER_BYTES = 5
NO_TIME_OUT_MS = 3_600_000
"""The wait for a commit must not end before the last part is appended: a repeated marker would not be appended then."""
OBJECTS_MAX = 2
"""The last marker and its last topic, since the next part may continue them."""


def request_of(shape: str) -> WriteTxnMarkersRequest:
    """Return a request with four parts and a few more elements, most of them in one array."""
    count = 4 * MARKERS_PER_PART
    few = WritableTxnMarker(1, 0, True, [WritableTxnMarkerTopic("t", [0, 9])])
    many = {
        "partitions": [WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", [9] * count)])],
        "topics": [WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", [2]) for _ in range(count)])],
        "empty topics": [WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("t", []) for _ in range(count)])],
        "markers": [WritableTxnMarker(n, 0, True, [WritableTxnMarkerTopic("t", [n % 3])]) for n in range(count)],
    }[shape]
    return WriteTxnMarkersRequest([few, *many, few])


def rows(response: Any) -> Iterator[tuple[int, list[tuple[str, list[tuple[int, int]]]]]]:
    for marker in response.markers:
        yield (
            marker.producer_id,
            [(t.name, [(row.partition_index, row.error_code) for row in t.partitions]) for t in marker.topics],
        )


def expected(request: WriteTxnMarkersRequest, error: ErrorCode | None = None) -> Iterator[Any]:
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            errors = [
                E.NONE if index < PARTITIONS else E.UNKNOWN_TOPIC_OR_PARTITION for index in topic.partition_indexes
            ]
            if error is not None:
                errors = [error] * len(errors)
            topics.append((topic.name, list(zip(topic.partition_indexes, errors, strict=True))))
        yield marker.producer_id, topics


@pytest.mark.parametrize("shape", ["partitions", "topics", "empty topics", "markers"])
async def test_large_request_is_appended_in_bounded_parts(
    tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count the markers, and their partitions, between two turns of another task."""
    rig = Rig(tmp_path)
    rig.topic("t", PARTITIONS)
    since_turn, largest = 0, 0
    write = rig.services.markers.write

    async def other_work() -> None:
        nonlocal since_turn
        while True:
            since_turn = 0
            await asyncio.sleep(0)

    def counted(markers: Any) -> Any:
        nonlocal since_turn, largest
        since_turn += sum(len(marker.partitions) for marker in markers)
        largest = max(largest, since_turn)
        return write(markers)

    monkeypatch.setattr(rig.services.markers, "write", counted)
    other = asyncio.create_task(other_work())
    request = request_of(shape)
    response = await outcome(write_txn_markers.handle(rig.context(27, 1), request))
    other.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await other
    assert list(rows(response)) == list(expected(request))
    assert 0 < largest <= MARKERS_PER_PART


@pytest.mark.parametrize("shape", ["partitions", "topics", "empty topics", "markers"])
async def test_results_of_a_part_are_encoded_and_counted_with_the_part(tmp_path: Path, shape: str) -> None:
    """Otherwise the errors of the whole response are counted in one callback before it is sent."""
    rig = Rig(tmp_path)
    rig.topic("t", PARTITIONS)
    metrics = ApiMetrics("WriteTxnMarkers")
    rig.session.begin_large = LargeRequests(ByteBudget(UNLIMITED), {27: metrics}).begin
    request = request_of(shape)
    response = await outcome(write_txn_markers.handle(rig.context(27, 1), request))
    assert objects(response) <= OBJECTS_MAX
    encoding = SlicedEncoding(27, 1, 1, response)
    while not encoding.run_slice():
        pass
    decoded = decode(WriteTxnMarkersResponse, 1, b"".join(encoding.chunks)[RESPONSE_HEADER_BYTES:])
    assert list(rows(decoded)) == list(expected(request))
    metrics.count_response(response, bytes_in=0, bytes_out=0, us=0)
    unknown = sum(index >= PARTITIONS for m in request.markers for t in m.topics for index in t.partition_indexes)
    assert metrics.errors == {E.UNKNOWN_TOPIC_OR_PARTITION: unknown}


def objects(response: Any) -> int:
    """Return the number of results that are not encoded."""
    markers = [marker for marker in response.markers if not isinstance(marker, Packed)]
    topics = [topic for marker in markers for topic in marker.topics if not isinstance(topic, Packed)]
    partitions = [row for topic in topics for row in topic.partitions if not isinstance(row, Packed)]
    return len(markers) + len(topics) + len(partitions)


async def test_later_requests_of_the_connection_wait_for_the_appends_but_not_for_the_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_writer, "COMMIT_MS_MAX", NO_TIME_OUT_MS)
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t", PARTITIONS)
    handled: Any = write_txn_markers.handle(rig.context(27, 1), request_of("markers"))
    ends = [rig.partition("t", index).log.log_end_offset for index in range(PARTITIONS)]
    response = await handled.awaitable
    assert sum(rig.partition("t", index).log.log_end_offset for index in range(PARTITIONS)) == (
        sum(ends) + 4 * MARKERS_PER_PART + 2
    )
    task = asyncio.ensure_future(response)
    await asyncio.sleep(0)
    assert not task.done()
    for commit in rig.commits:
        commit.advance()
    assert list(rows(await task)) == list(expected(request_of("markers")))


async def test_parts_that_remain_are_dropped_when_the_connection_closes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", PARTITIONS)
    handled: Any = write_txn_markers.handle(rig.context(27, 1), request_of("markers"))
    task = asyncio.ensure_future(handled.awaitable)
    await asyncio.sleep(0)
    rig.session.end()
    assert await task is None
    assert sum(rig.partition("t", index).log.log_end_offset for index in range(PARTITIONS)) <= MARKERS_PER_PART


@pytest.mark.parametrize(
    ("roles", "allowed", "error"),
    [((CLIENT,), True, E.INVALID_REQUEST), ((BROKER,), False, E.CLUSTER_AUTHORIZATION_FAILED)],
)
async def test_large_request_that_is_refused_appends_nothing(
    tmp_path: Path, roles: tuple[str, ...], allowed: bool, error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", PARTITIONS)
    context = rig.context(27, 1)
    rig.session.listener = replace(rig.session.listener, roles=roles)
    monkeypatch.setattr(
        context, "authorizer", SimpleNamespace(authorize=lambda *arguments: [allowed] * len(arguments[-1]))
    )
    request = request_of("partitions")
    response = await outcome(write_txn_markers.handle(context, request))
    assert list(rows(response)) == list(expected(request, error))
    assert context.encode_in_slices
    assert rig.partition().log.log_end_offset == 0
