"""A follower appends many batches at once: what its books say of the transactions among them is what they say where each came by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.config import LogConfig
from storage.log import ColdRead
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, marker, open_log, produced, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.log import PartitionLog


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
