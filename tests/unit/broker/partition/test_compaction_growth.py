"""Compaction bounds the topics of the coordinators: 30 days of transactions need no more space than one week.

The load is 100 transactions a second. The test writes one of the 50 partitions of each topic. Load and
`segment.bytes` are a 2,000th of the real ones. Times are not scaled: 2,592 transactions in 30 days (259,200,000 /
50 / 2000) on segments of 52,428 bytes. All sizes in the log scale with them, except the set of current keys: its
share is 2,000 times the real one. The job runs after each transaction, which is every 17 minutes. In production it
runs every 15 seconds, and a segment takes 2,000 times as many transactions.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.protocol.batch import build_batch, end_txn_marker
from odradek.storage.config import LogConfig
from odradek.storage.producers.entry import Origin
from tests.support.cleaning import fetched, latest
from tests.support.compaction_bench import Bench

DAY_MS = 24 * 60 * 60 * 1000
DAYS = 30
SCALE = 2000
TRANSACTIONS = 100 * DAYS * DAY_MS // 1000 // 50 // SCALE
STEP_MS = DAYS * DAY_MS // TRANSACTIONS
SEGMENT_BYTES = 104_857_600 // SCALE
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=("compact",), verification_enabled=False)
IDS_PER_DAY = 5
EXPIRATION_DAYS = 7

Append = Callable[[bytes], None]
Load = Callable[[Append, int, int], None]


def transaction_state(append: Append, number: int, now_ms: int) -> None:
    """Append three records per transaction.

    Each day has its own transactional ids; after a week they get tombstones.
    """
    day = (number * STEP_MS) // DAY_MS
    name = b"payments-of-day-%03d-%d" % (day, number % IDS_PER_DAY)
    for state in (b"Ongoing", b"PrepareCommit", b"CompleteCommit"):
        append(build_batch([(name, state.ljust(110, b"."), now_ms, ())]))
    per_day = DAY_MS // STEP_MS
    if number % per_day < IDS_PER_DAY and day >= EXPIRATION_DAYS:
        old = b"payments-of-day-%03d-%d" % (day - EXPIRATION_DAYS, number % per_day)
        append(build_batch([(old, None, now_ms, ())]))


def consumer_offsets(append: Append, number: int, now_ms: int) -> None:
    """Append offset commits of one transaction and its marker.

    One in twenty aborts. Each day has its own producer id.
    """
    producer_id = 1000 + (number * STEP_MS) // DAY_MS
    rows = [(b"group-topic-%d" % part, b"offset-%08d" % number, now_ms, ()) for part in range(4)]
    epoch = (number % 30_000) + 1
    append(build_batch(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True))
    append(
        end_txn_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=1,
            commit=number % 20 != 0,
            timestamp=now_ms,
        )
    )


@pytest.mark.parametrize("load", [transaction_state, consumer_offsets])
async def test_topic_size_after_a_month_is_bounded_as_after_a_week(tmp_path: Path, load: Load) -> None:
    bench = Bench(tmp_path, CONFIG)
    log = bench.log()
    clock = bench.rig.clock
    written = 0

    def append(data: bytes) -> None:
        nonlocal written
        written += len(data)
        bench.rig.partition().append(data, origin=Origin.COORDINATOR, now_ms=clock.now_ms)

    weeks: list[list[tuple[int, int, int]]] = [[] for _ in range(DAYS // 7 + 1)]
    for number in range(TRANSACTIONS):
        clock.now_ms += STEP_MS
        load(append, number, clock.now_ms)
        log.expire_producers(clock.now_ms)
        await bench.compaction.clean_due()
        await bench.logs.remove_deleted(clock.now_ms)
        index = sum(len(segment.txn_index) for segment in log.segments)
        weeks[number * STEP_MS // (7 * DAY_MS)].append((log.segments.size, len(log.segments), index))
    assert written > 12 * SEGMENT_BYTES, "size without compaction"
    first, *later = [[max(column) for column in zip(*week, strict=True)] for week in weeks]
    assert first[0] <= 3 * SEGMENT_BYTES
    for size, segments, aborted in later:
        assert size <= 3 * SEGMENT_BYTES
        assert segments <= first[1] + 1
        assert aborted <= first[2] * 2
    files = sum(path.stat().st_size for path in (tmp_path / "t-0").iterdir())
    assert files <= 6 * SEGMENT_BYTES, "including the segments replaced in the last minute"
    assert latest(fetched(log, committed=True)), "current keys remain"


def test_transactions_cover_every_day() -> None:
    assert TRANSACTIONS == 2592
    assert list(_days()) == list(range(DAYS))


def _days() -> Iterator[int]:
    previous_day = -1
    for number in range(TRANSACTIONS):
        day = number * STEP_MS // DAY_MS
        if day != previous_day:
            previous_day = day
            yield day
