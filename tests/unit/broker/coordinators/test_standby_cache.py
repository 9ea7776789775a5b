"""What is kept of a log while it is followed, and what an election then reads."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.broker.coordinators.log_replay import RECORDS_PER_SLICE, LoadQueue
from odradek.broker.coordinators.partition_log import PartitionLogPort
from odradek.broker.coordinators.standby_cache import DELETE_RETENTION_MS_MIN, StandbyCache
from odradek.protocol.batch import end_txn_marker
from odradek.runtime.shard import Marker, ShardRecord
from odradek.storage.config import DAY_MS, LogConfig
from odradek.storage.producers.entry import Origin
from tests.support.cleaning import clean
from tests.support.data_rig import NOW_MS, Gate, Rig

Visited = list[tuple[int, ShardRecord | Marker, int]]


class Kept(Rig):
    """A log of records whose high watermark moves by hand."""

    def __init__(self, folder: Path, config: LogConfig | None = None) -> None:
        self.gates: list[Gate] = []
        super().__init__(folder, gate=self._gate, config=config)
        self.topic("t")
        self.latest = StandbyCache(self.partition(), self.clock)

    def elected(self) -> PartitionLogPort:
        """What an election gives to the coordinator."""
        return PartitionLogPort(self.partition(), read_bytes=1_000, load_queue=LoadQueue(1), standby=self.latest)

    def _gate(self, topic: str, index: int, advance: Callable[[int], None]) -> Gate:
        self.gates.append(Gate(topic, index, advance))
        return self.gates[-1]

    def write(self, key: str, value: str | None) -> None:
        record = ShardRecord(key.encode(), None if value is None else value.encode())
        PartitionLogPort(self.partition(), read_bytes=1, load_queue=LoadQueue(1)).append([record], NOW_MS)

    async def read_on(self) -> None:
        await self.latest.catch_up(read_bytes=200)

    async def loaded(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        """What an election reads: {offset: (key, value)}."""
        found: dict[int, tuple[bytes | None, bytes | None]] = {}

        def visit(offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
            assert isinstance(entry, ShardRecord)
            assert leader_epoch == 0
            found[offset] = (entry.key, entry.value)

        await self.elected().replay(visit)
        return found

    async def state(self, port: PartitionLogPort) -> tuple[dict[bytes, bytes], dict[int, dict[bytes, bytes]]]:
        """What a coordinator of offsets makes of a replay: what is committed, and what is pending by producer."""
        committed: dict[bytes, tuple[int, bytes]] = {}
        pending: dict[int, dict[bytes, tuple[int, bytes]]] = {}

        def visit(offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
            if isinstance(entry, Marker):
                for key, (at, value) in pending.pop(entry.producer_id, {}).items():
                    if entry.commit and (key not in committed or committed[key][0] < at):
                        committed[key] = (at, value)
                return
            assert entry.key is not None
            if entry.value is None:
                committed.pop(entry.key, None)
                for kept in pending.values():
                    kept.pop(entry.key, None)
            elif entry.producer_id >= 0:
                pending.setdefault(entry.producer_id, {})[entry.key] = (offset, entry.value)
            else:
                committed[entry.key] = (offset, entry.value)

        await port.replay(visit)
        return (
            {key: value for key, (_, value) in sorted(committed.items())},
            {pid: {key: value for key, (_, value) in sorted(kept.items())} for pid, kept in pending.items() if kept},
        )


async def test_the_last_record_of_each_key_is_kept_and_the_rest_read(tmp_path: Path) -> None:
    rig = Kept(tmp_path)
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", None)):
        rig.write(key, value)
    rig.gates[0].open()
    await rig.read_on()
    assert (len(rig.latest), rig.latest.cached_end()) == (2, 5)
    rig.write("a", "3")
    rig.write("d", "1")
    found = await rig.loaded()
    assert found == {2: (b"a", b"2"), 3: (b"c", b"1"), 5: (b"a", b"3"), 6: (b"d", b"1")}
    assert list(found) == sorted(found)


async def test_only_what_is_committed_is_kept(tmp_path: Path) -> None:
    rig = Kept(tmp_path)
    rig.write("a", "1")
    rig.gates[0].open()
    rig.write("a", "2")
    await rig.read_on()
    assert rig.latest.cached_end() == 1
    assert await rig.loaded() == {0: (b"a", b"1"), 1: (b"a", b"2")}
    rig.gates[0].open()
    await rig.read_on()
    assert await rig.loaded() == {1: (b"a", b"2")}


async def test_a_log_that_was_cut_below_what_is_kept_is_read_anew(tmp_path: Path) -> None:
    """More was lost than the settings allow for: what is kept may be of records that are gone."""
    rig = Kept(tmp_path)
    for value in ("1", "2", "3"):
        rig.write("a", value)
    rig.gates[0].open()
    await rig.read_on()
    rig.partition().log.truncate_to(1, now_ms=NOW_MS)
    assert await rig.loaded() == {0: (b"a", b"1")}
    assert (len(rig.latest), rig.latest.cached_end()) == (0, 0)


async def test_what_lies_below_the_start_of_the_log_is_not_there(tmp_path: Path) -> None:
    rig = Kept(tmp_path)
    for key in ("a", "b", "c"):
        rig.write(key, "1")
    rig.gates[0].open()
    await rig.read_on()
    rig.partition().log.advance_log_start(1)
    assert await rig.loaded() == {1: (b"b", b"1"), 2: (b"c", b"1")}


COMPACTED = LogConfig(segment_bytes=250, cleanup_policy=("compact",))


async def take_the_tombstones(rig: Kept) -> None:
    """Compaction meets every tombstone that is not among the newest records, and takes it a day later."""
    for _ in range(2):
        for number in range(6):
            rig.write("filler", str(number))
        rig.gates[0].open()
        await clean(rig.partition().log, now_ms=rig.clock.now_ms)
        rig.clock.now_ms += DAY_MS


async def test_what_has_not_been_read_on_before_compaction_takes_tombstones_is_read_anew(tmp_path: Path) -> None:
    """A process that was stopped for a day, or a log that could not be read."""
    rig = Kept(tmp_path, COMPACTED)
    rig.write("deleted", "1")
    rig.gates[0].open()
    await rig.read_on()
    rig.write("deleted", None)
    await take_the_tombstones(rig)
    await rig.read_on()
    assert b"deleted" not in {key for key, _ in (await rig.loaded()).values()}
    assert (len(rig.latest), rig.latest.cached_end()) == (1, 13 + 1)
    rig.clock.now_ms += DAY_MS // 2
    assert rig.latest.cached_end() == 14
    await rig.read_on()  # nothing new, but that is known now
    rig.clock.now_ms += DAY_MS // 2 + 1
    assert rig.latest.cached_end() == 0


async def test_a_reading_that_took_too_long_counts_for_nothing(tmp_path: Path) -> None:
    rig = Kept(tmp_path)
    for number in range(RECORDS_PER_SLICE + 1):
        rig.write(f"k{number}", "1")
    rig.gates[0].open()
    reading = asyncio.ensure_future(rig.read_on())
    await asyncio.sleep(0)
    assert rig.latest.cached_end() > 0
    rig.clock.now_ms += DAY_MS // 2 + 1
    await reading
    assert (len(rig.latest), rig.latest.cached_end()) == (0, 0)


async def test_nothing_is_kept_where_tombstones_stay_for_seconds(tmp_path: Path) -> None:
    rig = Kept(tmp_path, LogConfig(delete_retention_ms=DELETE_RETENTION_MS_MIN - 1))
    rig.write("a", "1")
    rig.gates[0].open()
    await rig.read_on()
    assert rig.latest.cached_end() == 0
    assert await rig.loaded() == {0: (b"a", b"1")}


async def test_a_shard_that_is_loaded_again_does_not_begin_with_what_was_kept_at_its_election(tmp_path: Path) -> None:
    rig = Kept(tmp_path, COMPACTED)
    rig.write("deleted", "1")
    rig.gates[0].open()
    await rig.read_on()
    rig.clock.now_ms -= 2 * DAY_MS  # not even where the clock tells nothing
    port = rig.elected()
    await port.replay(lambda *_: None)
    rig.write("deleted", None)
    await take_the_tombstones(rig)
    assert b"deleted" not in (await rig.state(port))[0]


async def test_a_long_log_is_read_beside_everything_else(tmp_path: Path) -> None:
    rig = Kept(tmp_path)
    for number in range(3 * RECORDS_PER_SLICE):
        rig.write(f"k{number}", "1")
    rig.gates[0].open()
    loading = asyncio.ensure_future(rig.loaded())
    turns = 0
    while not loading.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 3
    assert len(loading.result()) == 3 * RECORDS_PER_SLICE
    await rig.read_on()
    assert len(await rig.loaded()) == 3 * RECORDS_PER_SLICE


async def test_the_shortest_goes_first_and_a_turn_that_nobody_takes_is_passed_on() -> None:
    turns = LoadQueue(1)
    await turns.acquire(1)
    order: list[str] = []

    async def waits(name: str, records: int) -> None:
        await turns.acquire(records)
        order.append(name)

    tasks = [asyncio.ensure_future(waits(name, size)) for name, size in (("long", 9), ("gone", 1), ("short", 2))]
    await asyncio.sleep(0)
    turns.release()
    tasks[1].cancel()  # it has been given the turn, and does not come any more
    for _ in range(3):
        await asyncio.sleep(0)
    assert order == ["short"]
    turns.release()
    await tasks[0]
    turns.release()
    await turns.acquire(5)
    assert order == ["short", "long"]


class Transacted(Kept):
    """The same log with transactions in it."""

    def transact(self, producer_id: int, key: str, value: str) -> None:
        guard = self.partition().log.producers.start_verification(producer_id, 0, 0, supports_epoch_bump=False)
        record = ShardRecord(key.encode(), value.encode(), producer_id, 0)
        port = PartitionLogPort(self.partition(), read_bytes=1, load_queue=LoadQueue(1), base_sequence=0)
        port.append([record], NOW_MS, guard)

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = end_txn_marker(
            producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, commit=commit, timestamp=NOW_MS
        )
        self.partition().append(marker, origin=Origin.COORDINATOR, now_ms=NOW_MS)


async def test_records_of_transactions_count_from_the_end_of_their_transaction(tmp_path: Path) -> None:
    rig = Transacted(tmp_path)
    rig.transact(7, "a", "in 7")
    rig.transact(8, "b", "in 8")
    rig.write("a", "newer than what 7 brings")
    rig.end(7, commit=True)
    rig.gates[0].open()
    await rig.read_on()
    assert (len(rig.latest), rig.latest.cached_end()) == (2, 4)
    assert await rig.state(rig.elected()) == ({b"a": b"newer than what 7 brings"}, {8: {b"b": b"in 8"}})
    rig.end(8, commit=False)
    assert await rig.state(rig.elected()) == ({b"a": b"newer than what 7 brings"}, {})


@pytest.mark.parametrize("seed", range(30))
async def test_what_is_kept_and_the_rest_make_the_state_that_the_whole_log_makes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rig = Transacted(tmp_path)
    whole = PartitionLogPort(rig.partition(), read_bytes=1_000, load_queue=LoadQueue(1))
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
            rig.gates[0].open()
            if rng.random() < 0.5:
                await rig.read_on()
        if number % 5 == 0:
            assert await rig.state(rig.elected()) == await rig.state(whole)
    assert rig.latest.cached_end() > 0
