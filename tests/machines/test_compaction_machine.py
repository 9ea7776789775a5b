"""Compaction against a list of all records, after each cleaning and after a crash during one.

The process stops, or power fails, at any change that a cleaning makes on the disk. `Compacted.check` checks reads of
both isolation levels from any offset.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.protocol.batch import Compression, build_batch, iter_batches
from odradek.simulation.environment.disk import Detached, DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from odradek.storage.compaction.cleaner import CleanerLimits, Cleaning, cleanable
from odradek.storage.compaction.offset_map import ENTRY_BYTES
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager
from tests.support.cleaning import fetched, latest, no_pause
from tests.support.effort import run_machine
from tests.support.logs import NOW_MS, TOPIC_ID, append, headers, load_all, marker, read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.protocol.batch import Record

RETENTION_MS = 1_000
CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    cleanup_policy=("compact",),
    delete_retention_ms=RETENTION_MS,
    producer_id_expiration_ms=10**9,
)
KEYS = st.integers(0, 3).map(lambda number: b"k%d" % number)
VALUES = st.none() | st.integers(0, 99).map(lambda number: b"v%d" % number)
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
TRANSACTIONAL = st.integers(0, 2)
IDEMPOTENT = 9
STEP_MAX = 60
"""Maximum number of the disk change at which a crash happens.

A cleaning makes fewer changes, so that some do not crash.
"""


class CrashingDisk(SimDisk):
    """A disk that detaches before its `crash_at`-th change."""

    crash_at: int | None = None

    def changing(self, kind: str, path: str, size: int = 0) -> None:
        if self.crash_at is not None:
            self.crash_at -= 1
            if self.crash_at < 0:
                self.crash_at = None
                self.detach()
        super().changing(kind, path, size)


@dataclass(frozen=True)
class Row:
    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    producer_id: int = -1
    transactional: bool = False
    ended: str = ""  # "committed" or "aborted" for ended transactions


class Compacted(RuleBasedStateMachine):
    """Operations on one compacted log."""

    @initialize(seed=st.integers(0, 10**6))
    def start_empty(self, seed: int) -> None:
        self.rng = Random(seed)
        self.loop = SimLoop(self.rng)
        self.medium = Medium()
        self.now_ms = NOW_MS
        self.rows: list[Row] = []
        self.sequences: dict[int, tuple[int, int]] = {}
        self.cleanings = 0
        self.open()
        self.log = self.logs.create("t", 0, TOPIC_ID, CONFIG, self.now_ms)
        self.write([(b"k0", b"v0")])
        self.run(self.log.flush)
        self.medium.root.make_durable()  # an existing data directory

    def open(self) -> None:
        self.disk = CrashingDisk(self.medium, self.loop, self.rng, name="n", latency=DiskLatency(cold_probability=0))
        self.logs = LogManager(self.disk, "/data", LogConfig())
        self.logs.directory.claim(node_id=1, rng=self.rng)

    def start(self) -> None:
        """Load the log with the default configuration; the topic's configuration follows."""
        self.open()
        load_all(self.logs, self.now_ms, run=self.loop.run_until_complete)
        log = self.logs.get("t", 0)
        assert log is not None
        self.log = log
        self.log.update_config(CONFIG)
        self.log.update_high_watermark(self.log.log_end_offset)

    def run(self, action: Callable[[], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            return await action()

        return self.loop.run_until_complete(main())

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    # ---- writing ----------------------------------------------------------------------------------------------------

    def write(self, pairs: list[tuple[bytes, bytes | None]], producer_id: int = -1, **fields: Any) -> None:
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, (-1, -1))[0] + 1
            fields |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        stamped = [(key, value, self.now_ms + number, ()) for number, (key, value) in enumerate(pairs)]
        info = append(self.log, build_batch(stamped, **fields), now_ms=self.now_ms)
        for number, (key, value, timestamp, _) in enumerate(stamped):
            transactional = fields.get("transactional", False)
            self.rows.append(Row(info.first_offset + number, timestamp, key, value, producer_id, transactional))
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(pairs) - 1, info.last_offset

    @rule(records=RECORDS, codec=st.sampled_from(Compression))
    def append_plain(self, records: list[tuple[bytes, bytes | None]], codec: Compression) -> None:
        self.write(records, compression=codec)

    @rule(records=st.lists(RECORDS, min_size=5, max_size=25))
    def append_many(self, records: list[list[tuple[bytes, bytes | None]]]) -> None:
        for row_ in records:
            self.write(row_)

    @rule(records=RECORDS)
    def append_idempotent(self, records: list[tuple[bytes, bytes | None]]) -> None:
        self.write(records, IDEMPOTENT)

    @rule(records=RECORDS, producer_id=TRANSACTIONAL, codec=st.sampled_from((Compression.NONE, Compression.ZSTD)))
    def append_transactional(
        self, records: list[tuple[bytes, bytes | None]], producer_id: int, codec: Compression
    ) -> None:
        self.write(records, producer_id, transactional=True, compression=codec)

    @rule(producer_id=TRANSACTIONAL, commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        append(self.log, marker(producer_id, commit=commit, timestamp=self.now_ms), now_ms=self.now_ms)
        result = "committed" if commit else "aborted"
        self.rows = [
            replace(row, ended=result)
            if row.transactional and row.producer_id == producer_id and not row.ended
            else row
            for row in self.rows
        ]

    @rule(by_ms=st.sampled_from((1, RETENTION_MS // 2, RETENTION_MS + 1)))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    # ---- cleaning, crashes, restarts --------------------------------------------------------------------------------

    async def clean_once(self, entries: int) -> None:
        log = self.log
        await log.flush()
        plan = cleanable(log, self.now_ms)
        if not plan.dirty_bytes:
            return
        await self.logs.checkpoint_recovery_points()
        limits = CleanerLimits(entries * ENTRY_BYTES, 1.0, 400)
        self.disk.latency.cold_probability = 0.2
        await Cleaning(log, plan, limits, no_pause, expiry_ms=self.now_ms, wall_ms=self.now_ms).run()
        self.disk.latency.cold_probability = 0
        await self.logs.checkpoint_cleaned()
        self.cleanings += 1

    @rule(entries=st.sampled_from((1000, 1000, 2)))
    def clean(self, entries: int) -> None:
        self.run(lambda: self.clean_once(entries))

    @rule(step=st.integers(0, STEP_MAX), power=st.booleans(), entries=st.sampled_from((1000, 3)))
    def crash_while_cleaning(self, step: int, power: bool, entries: int) -> None:
        async def crash() -> None:
            await self.log.flush()
            await self.logs.checkpoint_recovery_points()
            self.disk.crash_at = step
            await self.clean_once(entries)

        with suppress(Detached):
            self.run(crash)
        self.disk.detach()
        if power:
            self.medium.lose_power(self.rng)
        self.start()

    @rule(snapshots=st.booleans())
    def start_again(self, snapshots: bool) -> None:
        self.logs.close(clean=True)
        if not snapshots:
            for path, _ in self.medium.walk("/data"):
                if path.endswith((".snapshot", ".kafka_cleanshutdown")):
                    self.disk.remove(path)
        self.start()

    # ---- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def check(self) -> None:
        if hasattr(self, "log"):
            check_readers(self)
            check_producers(self)


def check_readers(machine: Compacted) -> None:
    log = machine.log
    rows = {row.offset: row for row in machine.rows}
    start = machine.rng.choice([0, machine.rng.randrange(log.log_end_offset + 1)])
    for committed in (True, False):
        stable = log.last_stable_offset if committed else log.log_end_offset
        seen = fetched(log, start, committed=committed, max_bytes=machine.rng.choice((1, 300, 1 << 20)))
        offsets = [record.offset for record in seen]
        assert offsets == sorted(set(offsets))
        for record in seen:
            row = rows[record.offset]
            assert (record.timestamp, record.key, record.value) == (row.timestamp, row.key, row.value)
            assert not (committed and row.ended == "aborted"), f"aborted record at {record.offset}"
        visible = [row for row in machine.rows if start <= row.offset < stable and row.ended != "aborted"]
        check_latest(visible, seen, machine.now_ms)


def check_latest(visible: list[Row], seen: list[Record], now_ms: int) -> None:
    """Check that the last record of each key that was not aborted is present, except expired tombstones."""
    kept = {record.offset: record for record in seen}
    last = {row.key: row for row in visible}
    for row in last.values():
        if row.value is not None:
            assert row.offset in kept, row
        elif row.offset not in kept:
            assert now_ms >= row.timestamp - 4 + RETENTION_MS, f"tombstone removed before its retention: {row}"
            assert not [row_ for row_ in visible if row_.key == row.key and row_.offset in kept], row
    expected = {key: row.value for key, row in last.items() if row.value is not None}
    visible_seen = [record for record in seen if any(row.offset == record.offset for row in visible)]
    assert latest(visible_seen) == expected


def check_producers(machine: Compacted) -> None:
    """Check the producer state, the open transactions, and that data of ended transactions precedes its marker."""
    log = machine.log
    for producer_id, (sequence, offset) in machine.sequences.items():
        entry = log.producers.entries[producer_id]
        assert (entry.last_sequence, entry.last_data_offset) == (sequence, offset)
    open_transactions = {row.producer_id for row in machine.rows if row.transactional and not row.ended}
    assert {producer_id for producer_id, _, _ in log.producers.ongoing_transactions()} == open_transactions
    batches = headers(log)
    markers = [(header.producer_id, header.base_offset) for header in batches if header.is_control]
    for header in batches:
        if header.is_transactional and not header.is_control and header.producer_id not in open_transactions:
            assert any(
                producer_id == header.producer_id and offset > header.last_offset for producer_id, offset in markers
            ), header
    if batches:
        assert batches[-1].last_offset == log.log_end_offset - 1, "the last batch ends at the log end offset"
    for header in batches:
        assert log.epochs.epoch_for(header.base_offset) == header.leader_epoch
        assert next(iter_batches(read(log, header.last_offset)))[0].base_offset == header.base_offset


def test_compaction_keeps_the_latest_records() -> None:
    run_machine(Compacted, examples=60, steps=30)
