"""A follower appends many batches at once: what its books say of the transactions among them is what they say where each came by itself."""

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
    """The leader's and the follower's, with an index entry for each batch but the first."""
    disk, config = FaultyDisk(), LogConfig(index_interval_bytes=0)
    yield open_log(disk, f"{tmp_path}/leader", config), open_log(disk, f"{tmp_path}/follower", config)
    disk.close()


def test_a_follower_that_gets_several_transactions_at_once_knows_the_first_open_one(
    logs: tuple[PartitionLog, PartitionLog],
) -> None:
    """7 comes first in the piece, by its marker, and opens its next transaction after 8 has opened one."""
    leader, follower = logs
    append(leader, produced(7, 0, transactional=True))
    follower.append_as_follower(read(leader, 0), now_ms=NOW_MS)
    append(leader, marker(7, commit=False))
    append(leader, produced(8, 0, transactional=True))
    append(leader, produced(7, 1, transactional=True))
    follower.append_as_follower(read(leader, 1), now_ms=NOW_MS)
    follower.update_high_watermark(follower.log_end_offset)
    assert follower.last_stable_offset == leader.last_stable_offset == 2


def test_who_reads_from_a_follower_that_got_several_aborted_transactions_at_once_is_told_of_each(
    logs: tuple[PartitionLog, PartitionLog],
) -> None:
    """The open transaction of 8 begins behind the first marker: what is stable after that ends at the marker, not at 8."""
    leader, follower = logs
    append(leader, produced(7, 0, transactional=True))
    append(leader, marker(7, commit=False))
    append(leader, produced(7, 1, transactional=True))
    append(leader, produced(8, 0, transactional=True))
    append(leader, produced(9, 0))
    append(leader, marker(7, commit=False))
    pieces = read(leader, 0)
    follower.append_as_follower(pieces, now_ms=NOW_MS)
    for log in logs:
        found = log.read(0, max_bytes=len(pieces) // 2)
        assert not isinstance(found, ColdRead)
        assert log.aborted_transactions(0, found) == [(7, 0), (7, 2)]
    assert follower.segments.active.txn_index.entries() == leader.segments.active.txn_index.entries()


def put(key: bytes, value: bytes, **producer: Any) -> bytes:
    return build_batch([(key, value, NOW_MS, ())], **producer)


def catch_up(follower: PartitionLog, leader: PartitionLog) -> None:
    while follower.log_end_offset < leader.log_end_offset:
        follower.append_as_follower(read(leader, follower.log_end_offset), now_ms=NOW_MS)
    follower.update_high_watermark(leader.high_watermark)


async def test_a_follower_that_was_away_while_a_marker_was_compacted_away_is_cut_before_its_transaction(
    tmp_path: Path,
) -> None:
    """It has data of 7 and of 8. Of the abort of 7 the leader has nothing but the epoch left, of 8 nothing."""
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
    follower.truncate_to(forgotten.value.offset, now_ms=NOW_MS)
    catch_up(follower, leader)
    assert follower.last_stable_offset == leader.last_stable_offset == 6
    assert follower.producers.entries[7].epoch == 1
    assert latest(fetched(follower, committed=True))[b"k"] == b"good"
    disk.close()


def test_a_follower_does_not_cut_for_ever_where_the_leader_has_data_and_the_emptied_marker(
    logs: tuple[PartitionLog, PartitionLog],
) -> None:
    """As a leader that was damaged has: each piece holds but one of them."""
    _, follower = logs
    whole = next(iter_batches(marker(7, commit=False, epoch=1)))[0]
    pieces = [as_replicated(0, produced(7, 0, transactional=True)), as_replicated(1, empty_batch(whole))]
    follower.append_as_follower(pieces[0], now_ms=NOW_MS)
    with pytest.raises(TransactionCompactedAway):
        follower.append_as_follower(pieces[1], now_ms=NOW_MS)
    with pytest.raises(TransactionCompactedAway):  # it was not cut: another leader, maybe
        follower.append_as_follower(pieces[1], now_ms=NOW_MS)
    follower.truncate_to(0, now_ms=NOW_MS)
    for piece in pieces:
        follower.append_as_follower(piece, now_ms=NOW_MS)
    assert follower.log_end_offset == 2


def as_replicated(offset: int, batch: bytes) -> bytes:
    """The batch as it lies in the leader's log at that offset."""
    return offset.to_bytes(8, "big") + batch[8:]
