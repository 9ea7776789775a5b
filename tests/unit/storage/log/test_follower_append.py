"""Follower appends with several batches: transactions have the same state as after one append per batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.batch import build_batch, iter_batches
from odradek.storage.compaction.batch_filter import empty_batch
from odradek.storage.config import LogConfig
from odradek.storage.log.empty_markers import TransactionCompactedAway
from odradek.storage.log.reads import ColdRead
from tests.support.cleaning import clean, fetched, latest
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, batch, headers, marker, open_log, produced, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[tuple[PartitionLog, PartitionLog]]:
    """Return the logs of the leader and the follower. All batches except the first have an index entry."""
    disk, config = FaultyDisk(), LogConfig(index_interval_bytes=0)
    yield open_log(disk, f"{tmp_path}/leader", config), open_log(disk, f"{tmp_path}/follower", config)
    disk.close()


def test_follower_append_of_several_transactions_tracks_the_first_open_one(
    logs: tuple[PartitionLog, PartitionLog],
) -> None:
    """The append begins with the marker of producer 7. Producer 8 then opens a transaction before producer 7."""
    leader, follower = logs
    append(leader, produced(7, 0, transactional=True))
    follower.append_as_follower(read(leader, 0), now_ms=NOW_MS, monotonic_ms=NOW_MS)
    append(leader, marker(7, commit=False))
    append(leader, produced(8, 0, transactional=True))
    append(leader, produced(7, 1, transactional=True))
    follower.append_as_follower(read(leader, 1), now_ms=NOW_MS, monotonic_ms=NOW_MS)
    follower.update_high_watermark(follower.log_end_offset)
    assert follower.last_stable_offset == leader.last_stable_offset == 2


def test_follower_append_of_several_aborted_transactions_indexes_each(
    logs: tuple[PartitionLog, PartitionLog],
) -> None:
    """The open transaction of producer 8 begins after the first marker: the stable offset is after that marker."""
    leader, follower = logs
    append(leader, produced(7, 0, transactional=True))
    append(leader, marker(7, commit=False))
    append(leader, produced(7, 1, transactional=True))
    append(leader, produced(8, 0, transactional=True))
    append(leader, produced(9, 0))
    append(leader, marker(7, commit=False))
    pieces = read(leader, 0)
    follower.append_as_follower(pieces, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    for log in logs:
        read_result = log.read(0, max_bytes=len(pieces) // 2)
        assert not isinstance(read_result, ColdRead)
        assert log.aborted_transactions(0, read_result) == [(7, 0), (7, 2)]
    assert follower.segments.active.txn_index.entries() == leader.segments.active.txn_index.entries()


def put(key: bytes, value: bytes, **producer: Any) -> bytes:
    return build_batch([(key, value, NOW_MS, ())], **producer)


def catch_up(follower: PartitionLog, leader: PartitionLog) -> None:
    while follower.log_end_offset < leader.log_end_offset:
        follower.append_as_follower(read(leader, follower.log_end_offset), now_ms=NOW_MS, monotonic_ms=NOW_MS)
    follower.update_high_watermark(leader.high_watermark)


async def test_emptied_marker_of_an_open_transaction_requests_truncation_of_the_follower(
    tmp_path: Path,
) -> None:
    """The follower has data of producers 7 and 8. The leader has an emptied marker of 7, and nothing of 8."""
    disk = FaultyDisk()
    config = LogConfig(cleanup_policy=("compact",), delete_retention_ms=0)
    leader, follower = (open_log(disk, f"{tmp_path}/{name}", config) for name in ("leader", "follower"))
    append(leader, put(b"k", b"good"))
    append(leader, put(b"k", b"aborted", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True))
    append(leader, put(b"k", b"aborted", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    catch_up(follower, leader)
    append(leader, marker(8, commit=False))
    append(leader, marker(7, commit=False, epoch=1))
    append(leader, batch())
    leader.roll(NOW_MS)
    del leader.producers.entries[8]
    for passes in range(3):
        leader.cleaned_to = None
        await clean(leader, now_ms=NOW_MS + passes)
    assert [(header.base_offset, header.record_count) for header in headers(leader)] == [(0, 1), (4, 0), (5, 1)]
    with pytest.raises(TransactionCompactedAway) as forgotten:
        catch_up(follower, leader)
    assert (forgotten.value.offset, follower.log_end_offset) == (1, 3)
    follower.truncate_to(forgotten.value.offset, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    catch_up(follower, leader)
    assert follower.last_stable_offset == leader.last_stable_offset == 6
    assert follower.producers.entries[7].epoch == 1
    assert latest(fetched(follower, committed=True))[b"k"] == b"good"
    disk.close()


def test_emptied_marker_is_accepted_after_one_truncation(
    logs: tuple[PartitionLog, PartitionLog],
) -> None:
    """A damaged leader sends the data and the emptied marker in separate batches."""
    _, follower = logs
    whole = next(iter_batches(marker(7, commit=False, epoch=1)))[0]
    pieces = [as_replicated(0, produced(7, 0, transactional=True)), as_replicated(1, empty_batch(whole))]
    follower.append_as_follower(pieces[0], now_ms=NOW_MS, monotonic_ms=NOW_MS)
    with pytest.raises(TransactionCompactedAway):
        follower.append_as_follower(pieces[1], now_ms=NOW_MS, monotonic_ms=NOW_MS)
    with pytest.raises(TransactionCompactedAway):  # the log was not truncated: another leader may have sent the batch
        follower.append_as_follower(pieces[1], now_ms=NOW_MS, monotonic_ms=NOW_MS)
    follower.truncate_to(0, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    for piece in pieces:
        follower.append_as_follower(piece, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert follower.log_end_offset == 2


def as_replicated(offset: int, batch: bytes) -> bytes:
    """Return the batch with the offset and epoch that it has in the log of the leader."""
    return offset.to_bytes(8, "big") + batch[8:]
