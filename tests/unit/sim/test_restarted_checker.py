"""I16 of a compacted topic, made by hand: what a broker that comes up may know of its producers."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sim.checkers.batches import Batch, read_batches
from tests.sim.checkers.replica_log import ReplicaLog
from tests.sim.environment.loop import SimLoop
from tests.sim.environment.medium import Medium
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
"""Producer, epoch, last sequence, coordinator's epoch, where its open transaction began."""


def findings(log: Sequence[tuple[Batch, Batch | None]], stable: int, *rows: Row) -> list[str]:
    """What is said of a broker that claims that, with a log of such batches: as they were written, and what is left of each."""
    loop = SimLoop(Random(1))
    monitor = Monitor("/data", "ledger", CommitDelays(loop), lambda: 0, flush=False)
    replica = monitor.watcher(1, Medium()).logs[TABLE, 0] = ReplicaLog()
    for batch, held in log:
        replica.add(batch, 0, 0, held)
    names = ("producer_id", "producer_epoch", "last_sequence", "coordinator_epoch", "current_txn_start_offset")
    known = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows]
    claims = SimpleNamespace(
        log_end_offset=replica.end, last_stable_offset=stable, producers=SimpleNamespace(active=lambda: known)
    )
    partition = SimpleNamespace(online=True, log=claims)
    loop.close()
    return monitor.differences(1, "node", cast("Any", SimpleNamespace(get=lambda *_: partition)))


WHOLE = [(batch, batch) for batch in BEFORE]
FETCHED = [*WHOLE, (FIRST, None), (SECOND, emptied(SECOND))]
"""The leader has compacted the transaction, which was aborted, up to before its marker; the follower has not come to that one yet."""


@pytest.mark.parametrize("since", [5, 9])
def test_a_transaction_begins_with_what_was_left_of_it_for_who_fetched_it_compacted(since: int) -> None:
    """At 5 it begins for who had a snapshot of when it was whole."""
    assert findings(FETCHED, since, (PRODUCER, 3, 6, 0, since)) == []


def test_it_is_open_until_its_marker_comes_and_hides_what_is_behind() -> None:
    assert len(findings(FETCHED, 12, (PRODUCER, 3, 6, 0, -1))) == 2
    assert findings(FETCHED, 12, (PRODUCER, 3, 6, 0, 9)) == [
        f"I16 node {TABLE}-0: last stable offset 12, a replay gives 9"
    ]
    assert findings(FETCHED, 9, (PRODUCER, 3, 6, 0, 5)) == [
        f"I16 node {TABLE}-0: last stable offset 9, a replay gives 5"
    ]


def test_it_begins_with_its_first_batch_where_that_is() -> None:
    for first in (FIRST, emptied(FIRST)):
        assert len(findings([*WHOLE, (FIRST, first), (SECOND, SECOND)], 9, (PRODUCER, 3, 6, 0, 9))) == 2


def test_who_never_had_a_batch_of_it_knows_of_none() -> None:
    """So the producer is as it was before, and one of which nothing is left is not known at all."""
    gone = [*WHOLE, (FIRST, None), (SECOND, None), (LATER, emptied(LATER))]
    before, other = (PRODUCER, 3, -1, 0, -1), (OTHER, 3, 0, -1, -1)
    assert findings(gone, 13, before, other) == []
    assert len(findings(gone, 13, (PRODUCER, 2, 3, 0, -1), other)) == 2
    assert len(findings(gone, 13, before)) == 1
    assert findings([*WHOLE, (LATER, None), (FIRST, FIRST)], 5, (PRODUCER, 3, 3, 0, 5)) == []


def test_a_marker_without_its_record_says_the_epoch_and_not_who_coordinated() -> None:
    end = BEFORE[1]
    log = [(BEFORE[0], None), (end, emptied(end)), (FIRST, None), (LATER, LATER)]
    other = (OTHER, 3, 0, -1, -1)
    assert findings(log, 13, (PRODUCER, 3, -1, -1, -1), other) == []
    assert len(findings(log, 13, (PRODUCER, -1, -1, -1, -1), other)) == 2
