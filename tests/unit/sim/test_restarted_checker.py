"""I16 of a compacted topic, by hand-written logs: producer state of a restarted broker."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from tests.sim.checkers.batches import Batch, read_batches
from tests.sim.checkers.evidence import Evidence, SnapshotRow
from tests.sim.checkers.recovery import accept_expired, check_producer_state
from tests.sim.checkers.replica_log import ReplicaLog
from tests.sim.checkers.visibility import PartitionModel, Producer
from tests.sim.history import History
from tests.sim.watchers.commit_delays import CommitDelays
from tests.sim.watchers.monitor import Monitor
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch, encode_marker
from tests.sim.world import TABLE

PRODUCER, OTHER = 7, 8


def written(offset: int, count: int, sequence: int, *, producer: int = PRODUCER, epoch: int = 3) -> Batch:
    data = encode_batch(
        [(b"key", b"value")] * count,
        timestamp=1,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if producer == PRODUCER else 0,
    )
    return next(read_batches(data))


def marker(offset: int, epoch: int) -> Batch:
    data = encode_marker(
        producer_id=PRODUCER, producer_epoch=epoch, coordinator_epoch=0, commit=False, timestamp=1, base_offset=offset
    )
    return next(read_batches(data))


def emptied(batch: Batch) -> Batch:
    return replace(batch, crc=batch.crc + 1, deltas=[], records=[])


BEFORE = [written(0, 4, 0, epoch=2), marker(4, 3)]
FIRST, SECOND = written(5, 4, 0), written(9, 3, 4)
"""Batches of one transaction."""
LATER = written(12, 1, 0, producer=OTHER)

Row = tuple[int, int, int, int, int]
"""Producer id, epoch, last sequence, coordinator epoch, first offset of the open transaction."""


def findings(log: Sequence[tuple[Batch, Batch | None]], stable: int, *rows: Row) -> list[str]:
    """Return the findings about a broker with these producer rows and this log of (original batch, batch on disk)."""
    loop = SimLoop(Random(1))
    monitor = Monitor("/data", "ledger", CommitDelays(loop), lambda: 0, flush=False)
    replica = monitor.watcher(1, Medium()).logs[TABLE, 0] = ReplicaLog()
    for batch, held in log:
        replica.add(batch, 0, 0, held)
    names = ("producer_id", "producer_epoch", "last_sequence", "coordinator_epoch", "current_txn_start_offset")
    active = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows]
    log_state = SimpleNamespace(
        log_end_offset=replica.end, last_stable_offset=stable, producers=SimpleNamespace(active=lambda: active)
    )
    partition = SimpleNamespace(online=True, log=log_state)
    loop.close()
    return monitor.differences(1, "node", cast("Any", SimpleNamespace(get=lambda *_: partition)))


WHOLE = [(batch, batch) for batch in BEFORE]
FETCHED = [*WHOLE, (FIRST, None), (SECOND, emptied(SECOND))]
"""The leader compacted the aborted transaction up to its marker. The follower has not fetched the marker yet."""


@pytest.mark.parametrize("since", [5, 9])
def test_transaction_fetched_after_compaction_begins_with_its_first_remaining_batch(since: int) -> None:
    """Offset 5 is correct for a broker with a snapshot from before the compaction."""
    assert findings(FETCHED, since, (PRODUCER, 3, 6, 0, since)) == []


def test_open_transaction_bounds_the_stable_offset_until_its_marker() -> None:
    assert len(findings(FETCHED, 12, (PRODUCER, 3, 6, 0, -1))) == 2
    assert findings(FETCHED, 12, (PRODUCER, 3, 6, 0, 9)) == [
        f"I16 node {TABLE}-0: last stable offset 12, a replay gives 9"
    ]
    assert findings(FETCHED, 9, (PRODUCER, 3, 6, 0, 5)) == [
        f"I16 node {TABLE}-0: last stable offset 9, a replay gives 5"
    ]


def test_transaction_must_begin_with_its_first_batch_on_disk() -> None:
    for first in (FIRST, emptied(FIRST)):
        assert len(findings([*WHOLE, (FIRST, first), (SECOND, SECOND)], 9, (PRODUCER, 3, 6, 0, 9))) == 2


def test_producer_without_batches_on_disk_is_unknown() -> None:
    """The producer state is that from before the transaction. A producer without any batch left is unknown."""
    gone = [*WHOLE, (FIRST, None), (SECOND, None), (LATER, emptied(LATER))]
    before, other = (PRODUCER, 3, -1, 0, -1), (OTHER, 3, 0, -1, -1)
    assert findings(gone, 13, before, other) == []
    assert len(findings(gone, 13, (PRODUCER, 2, 3, 0, -1), other)) == 2
    assert len(findings(gone, 13, before)) == 1
    assert findings([*WHOLE, (LATER, None), (FIRST, FIRST)], 5, (PRODUCER, 3, 3, 0, 5)) == []


def test_marker_without_record_gives_the_epoch_but_no_coordinator_epoch() -> None:
    end = BEFORE[1]
    log = [(BEFORE[0], None), (end, emptied(end)), (FIRST, None), (LATER, LATER)]
    other = (OTHER, 3, 0, -1, -1)
    assert findings(log, 13, (PRODUCER, 3, -1, -1, -1), other) == []
    assert len(findings(log, 13, (PRODUCER, -1, -1, -1, -1), other)) == 2


def test_described_producer_may_lack_batches_that_compaction_removed_if_producers_expire() -> None:
    place = ("table", 0)
    whole, left = PartitionModel(), PartitionModel()
    whole.producers[7] = Producer(3, last_sequence=17)
    left.producers[7] = Producer(3, last_sequence=-1)
    for last_sequence, expire, count in ((-1, True, 0), (17, True, 0), (5, True, 1), (-1, False, 1)):
        evidence = Evidence(
            History(), {place: whole}, compacted={place: 0}, left={place: left}, producers_expire=expire
        )
        evidence.described_producers[place] = [SnapshotRow(7, 3, last_sequence, -1, -1)]
        assert len(list(check_producer_state(evidence))) == count, (last_sequence, expire)


def test_only_producers_without_an_open_transaction_may_be_missing_if_they_expire() -> None:
    def rows() -> dict[int, SnapshotRow]:
        return {7: SnapshotRow(7, 3, 4, 2, 10), 8: SnapshotRow(8, 0, 1, 5, -1), 9: SnapshotRow(9, 0, 1, 5, -1)}

    expected, broker = rows(), rows()
    del broker[7], broker[8]
    broker[9].coordinator_epoch = -1
    accept_expired(broker, expected)
    assert expected == {7: rows()[7], 9: broker[9]}
