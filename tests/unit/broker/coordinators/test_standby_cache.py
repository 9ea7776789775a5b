"""Standby cache of a coordinator's partition: what it retains, and what an election then reads."""

import asyncio
import random
from pathlib import Path

import pytest

from odradek.broker.coordinators import standby_cache
from odradek.broker.coordinators.log_replay import RECORDS_PER_SLICE, replay
from odradek.broker.coordinators.partition_log import PartitionLogPort
from odradek.broker.coordinators.standby_cache import DELETE_RETENTION_MS_MIN, StandbyCache
from odradek.broker.partition.partition import Partition
from odradek.broker.quota.shortest_first import ShortestFirst
from odradek.protocol.batch import end_txn_marker
from odradek.runtime.log_port import ReplayVisitor
from odradek.runtime.shard import Marker, ShardRecord
from odradek.storage.config import DAY_MS, LogConfig
from odradek.storage.producers.entry import Origin
from tests.support.cleaning import clean
from tests.support.data_rig import NOW_MS, Rig

Visited = list[tuple[int, ShardRecord | Marker, int]]


class StandbyRig(Rig):
    """A log with a standby cache. The test advances the high watermark."""

    def __init__(self, folder: Path, config: LogConfig | None = None) -> None:
        super().__init__(folder, manual_commits=True, config=config)
        self.topic("t")
        self.cache = StandbyCache(self.partition(), self.clock)

    def port_at_election(self) -> PartitionLogPort:
        """Return the port that the coordinator gets at an election."""
        return PartitionLogPort(self.partition(), read_bytes=1_000, load_queue=ShortestFirst(1), standby=self.cache)

    def write(self, key: str, value: str | None) -> None:
        record = ShardRecord(key.encode(), None if value is None else value.encode())
        PartitionLogPort(self.partition(), read_bytes=1, load_queue=ShortestFirst(1)).append([record], NOW_MS)

    async def catch_up(self) -> None:
        await self.cache.catch_up(read_bytes=200)

    async def loaded(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        """Return the records that an election reads: {offset: (key, value)}."""
        records: dict[int, tuple[bytes | None, bytes | None]] = {}

        def visit(offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
            assert isinstance(entry, ShardRecord)
            assert leader_epoch == 0
            records[offset] = (entry.key, entry.value)

        await self.port_at_election().replay(visit)
        return records

    async def state(self, port: PartitionLogPort) -> tuple[dict[bytes, bytes], dict[int, dict[bytes, bytes]]]:
        """Replay as the group coordinator does. Return the committed values, and the pending values by producer id."""
        committed: dict[bytes, tuple[int, bytes]] = {}
        pending: dict[int, dict[bytes, tuple[int, bytes]]] = {}

        def visit(offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
            if isinstance(entry, Marker):
                for key, (written_offset, value) in pending.pop(entry.producer_id, {}).items():
                    if entry.commit and (key not in committed or committed[key][0] < written_offset):
                        committed[key] = (written_offset, value)
                return
            assert entry.key is not None
            if entry.value is None:
                committed.pop(entry.key, None)
                for values in pending.values():
                    values.pop(entry.key, None)
            elif entry.producer_id >= 0:
                pending.setdefault(entry.producer_id, {})[entry.key] = (offset, entry.value)
            else:
                committed[entry.key] = (offset, entry.value)

        await port.replay(visit)
        return (
            {key: value for key, (_, value) in sorted(committed.items())},
            {
                pid: {key: value for key, (_, value) in sorted(values.items())}
                for pid, values in pending.items()
                if values
            },
        )


async def test_load_returns_the_last_record_of_each_key_and_all_later_records(tmp_path: Path) -> None:
    rig = StandbyRig(tmp_path)
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", None)):
        rig.write(key, value)
    rig.commits[0].advance()
    await rig.catch_up()
    assert (len(rig.cache), rig.cache.cached_end()) == (2, 5)
    rig.write("a", "3")
    rig.write("d", "1")
    records = await rig.loaded()
    assert records == {2: (b"a", b"2"), 3: (b"c", b"1"), 5: (b"a", b"3"), 6: (b"d", b"1")}
    assert list(records) == sorted(records)


async def test_cache_retains_committed_records_only(tmp_path: Path) -> None:
    rig = StandbyRig(tmp_path)
    rig.write("a", "1")
    rig.commits[0].advance()
    rig.write("a", "2")
    await rig.catch_up()
    assert rig.cache.cached_end() == 1
    assert await rig.loaded() == {0: (b"a", b"1"), 1: (b"a", b"2")}
    rig.commits[0].advance()
    await rig.catch_up()
    assert await rig.loaded() == {1: (b"a", b"2")}


async def test_truncation_below_the_cached_end_empties_the_cache(tmp_path: Path) -> None:
    """The log lost committed records. The cache may contain records that no longer exist."""
    rig = StandbyRig(tmp_path)
    for value in ("1", "2", "3"):
        rig.write("a", value)
    rig.commits[0].advance()
    await rig.catch_up()
    rig.partition().log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert await rig.loaded() == {0: (b"a", b"1")}
    assert (len(rig.cache), rig.cache.cached_end()) == (0, 0)


async def test_load_omits_records_below_the_log_start_offset(tmp_path: Path) -> None:
    rig = StandbyRig(tmp_path)
    for key in ("a", "b", "c"):
        rig.write(key, "1")
    rig.commits[0].advance()
    await rig.catch_up()
    rig.partition().log.advance_log_start(1)
    assert await rig.loaded() == {1: (b"b", b"1"), 2: (b"c", b"1")}


COMPACTED = LogConfig(segment_bytes=250, cleanup_policy=("compact",))


async def compact_tombstones(rig: StandbyRig) -> None:
    """Make compaction remove each tombstone outside the active segment: it does so in its second pass, a day later."""
    for _ in range(2):
        for number in range(6):
            rig.write("filler", str(number))
        rig.commits[0].advance()
        await clean(rig.partition().log, now_ms=rig.clock.now_ms)
        rig.clock.now_ms += DAY_MS


async def test_cache_that_is_older_than_the_tombstone_retention_is_read_again(tmp_path: Path) -> None:
    """A process that was stopped for a day, or a log that could not be read, misses tombstones."""
    rig = StandbyRig(tmp_path, COMPACTED)
    rig.write("deleted", "1")
    rig.commits[0].advance()
    await rig.catch_up()
    rig.write("deleted", None)
    await compact_tombstones(rig)
    await rig.catch_up()
    assert b"deleted" not in {key for key, _ in (await rig.loaded()).values()}
    assert (len(rig.cache), rig.cache.cached_end()) == (1, 13 + 1)
    rig.clock.now_ms += DAY_MS // 2
    assert rig.cache.cached_end() == 14
    await rig.catch_up()  # no new records, but the cache is current again
    rig.clock.now_ms += DAY_MS // 2 + 1
    assert rig.cache.cached_end() == 0


async def test_catch_up_that_takes_too_long_empties_the_cache(tmp_path: Path) -> None:
    rig = StandbyRig(tmp_path)
    for number in range(RECORDS_PER_SLICE + 1):
        rig.write(f"k{number}", "1")
    rig.commits[0].advance()
    reading = asyncio.ensure_future(rig.catch_up())
    await asyncio.sleep(0)
    assert rig.cache.cached_end() > 0
    rig.clock.now_ms += DAY_MS // 2 + 1
    await reading
    assert (len(rig.cache), rig.cache.cached_end()) == (0, 0)


async def test_unreadable_batch_is_read_once_until_the_log_starts_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that expands to 128 MiB must not be decompressed again each half second."""
    starts: list[int] = []

    async def counted(partition: Partition, start: int, end: int, visit: ReplayVisitor, *, read_bytes: int) -> None:
        starts.append(start)
        await replay(partition, start, end, visit, read_bytes=read_bytes)

    monkeypatch.setattr(standby_cache, "replay", counted)
    rig = StandbyRig(tmp_path)
    rig.write("a", "1")
    port = PartitionLogPort(rig.partition(), read_bytes=1, load_queue=ShortestFirst(1))
    port.append([ShardRecord(None, b"a record without a key is malformed")], NOW_MS)
    rig.commits[0].advance()
    for _ in range(3):
        await rig.catch_up()
    assert starts == [0]
    rig.write("b", "2")
    rig.commits[0].advance()
    rig.partition().log.advance_log_start(2)
    await rig.catch_up()
    assert starts[-1] == 2
    assert len(rig.cache) == 1


async def test_cache_is_unused_with_a_short_delete_retention(tmp_path: Path) -> None:
    rig = StandbyRig(tmp_path, LogConfig(delete_retention_ms=DELETE_RETENTION_MS_MIN - 1))
    rig.write("a", "1")
    rig.commits[0].advance()
    await rig.catch_up()
    assert rig.cache.cached_end() == 0
    assert await rig.loaded() == {0: (b"a", b"1")}


async def test_second_load_of_a_shard_does_not_use_the_cache_of_the_election(tmp_path: Path) -> None:
    rig = StandbyRig(tmp_path, COMPACTED)
    rig.write("deleted", "1")
    rig.commits[0].advance()
    await rig.catch_up()
    rig.clock.now_ms -= 2 * DAY_MS  # the age of the cache does not show it
    port = rig.port_at_election()
    await port.replay(lambda *_: None)
    rig.write("deleted", None)
    await compact_tombstones(rig)
    assert b"deleted" not in (await rig.state(port))[0]


async def test_load_of_a_long_log_yields_to_the_event_loop(tmp_path: Path) -> None:
    rig = StandbyRig(tmp_path)
    for number in range(3 * RECORDS_PER_SLICE):
        rig.write(f"k{number}", "1")
    rig.commits[0].advance()
    loading = asyncio.ensure_future(rig.loaded())
    turns = 0
    while not loading.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 3
    assert len(loading.result()) == 3 * RECORDS_PER_SLICE
    await rig.catch_up()
    assert len(await rig.loaded()) == 3 * RECORDS_PER_SLICE


async def test_load_queue_admits_the_shortest_log_first_and_skips_cancelled_loads() -> None:
    turns = ShortestFirst(1)
    await turns.acquire(1)
    order: list[str] = []

    async def load(name: str, records: int) -> None:
        await turns.acquire(records)
        order.append(name)

    tasks = [asyncio.ensure_future(load(name, size)) for name, size in (("long", 9), ("gone", 1), ("short", 2))]
    await asyncio.sleep(0)
    turns.release()
    tasks[1].cancel()  # this task was admitted, and does not release its turn
    for _ in range(3):
        await asyncio.sleep(0)
    assert order == ["short"]
    turns.release()
    await tasks[0]
    turns.release()
    await turns.acquire(5)
    assert order == ["short", "long"]


class TransactionalRig(StandbyRig):
    """A log with transactions and a standby cache."""

    def transact(self, producer_id: int, key: str, value: str) -> None:
        guard = self.partition().log.producers.start_verification(producer_id, 0, 0, supports_epoch_bump=False)
        record = ShardRecord(key.encode(), value.encode(), producer_id, 0)
        port = PartitionLogPort(self.partition(), read_bytes=1, load_queue=ShortestFirst(1), base_sequence=0)
        port.append([record], NOW_MS, guard)

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = end_txn_marker(
            producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, commit=commit, timestamp=NOW_MS
        )
        self.partition().append(marker, origin=Origin.COORDINATOR, now_ms=NOW_MS)


async def test_transactional_records_count_from_the_end_of_their_transaction(tmp_path: Path) -> None:
    rig = TransactionalRig(tmp_path)
    rig.transact(7, "a", "in 7")
    rig.transact(8, "b", "in 8")
    rig.write("a", "newer than the record of 7")
    rig.end(7, commit=True)
    rig.commits[0].advance()
    await rig.catch_up()
    assert (len(rig.cache), rig.cache.cached_end()) == (2, 4)
    assert await rig.state(rig.port_at_election()) == ({b"a": b"newer than the record of 7"}, {8: {b"b": b"in 8"}})
    rig.end(8, commit=False)
    assert await rig.state(rig.port_at_election()) == ({b"a": b"newer than the record of 7"}, {})


async def test_cache_keeps_one_record_per_key_of_an_open_transaction(tmp_path: Path) -> None:
    """A client can repeat TxnOffsetCommit for one partition until its transaction ends."""
    rig = TransactionalRig(tmp_path)
    for number in range(100):
        rig.transact(7, "a", str(number))
    rig.transact(8, "a", "in 8")
    rig.commits[0].advance()
    await rig.catch_up()
    assert len(rig.cache) == 2
    assert await rig.state(rig.port_at_election()) == ({}, {7: {b"a": b"99"}, 8: {b"a": b"in 8"}})
    rig.end(8, commit=False)
    rig.write("a", None)
    rig.end(7, commit=True)
    rig.commits[0].advance()
    await rig.catch_up()
    assert (len(rig.cache), rig.cache._pending) == (0, {})
    assert await rig.state(rig.port_at_election()) == ({}, {})


@pytest.mark.parametrize("seed", range(30))
async def test_cache_and_the_rest_of_the_log_give_the_same_state_as_the_whole_log(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rig = TransactionalRig(tmp_path)
    whole = PartitionLogPort(rig.partition(), read_bytes=1_000, load_queue=ShortestFirst(1))
    for number in range(60):
        key, producer_id = rng.choice("abc"), rng.choice((7, 8))
        action = rng.random()
        if action < 0.4:
            rig.transact(producer_id, key, str(number))
        elif action < 0.6:
            rig.write(key, rng.choice((None, str(number))))
        elif action < 0.75:
            rig.end(producer_id, commit=rng.random() < 0.6)
        else:
            rig.commits[0].advance()
            if rng.random() < 0.5:
                await rig.catch_up()
        if number % 5 == 0:
            assert await rig.state(rig.port_at_election()) == await rig.state(whole)
    assert rig.cache.cached_end() > 0
