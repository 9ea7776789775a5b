"""What is kept of a log while it is followed, and what an election then reads."""

import asyncio
from pathlib import Path

from broker.latest_records import LatestRecords
from broker.log_replay import RECORDS_AT_A_TIME, Turns
from broker.partition_log_port import PartitionLogPort
from runtime.shard import Marker, ShardRecord
from tests.support.data_rig import NOW_MS, Gate, Rig

Visited = list[tuple[int, ShardRecord | Marker, int]]


class Kept(Rig):
    """A log of records whose high watermark moves by hand."""

    def __init__(self, folder: Path) -> None:
        self.gates: list[Gate] = []
        super().__init__(folder, gate=self._gate)
        self.topic("t")
        self.latest = LatestRecords(self.partition())
        self.port = PartitionLogPort(self.partition(), read_bytes=1_000, turns=Turns(1), latest=self.latest)

    def _gate(self, topic: str, index: int, advance: object) -> Gate:
        self.gates.append(Gate(topic, index, advance))  # type: ignore[arg-type]
        return self.gates[-1]

    def write(self, key: str, value: str | None) -> None:
        record = ShardRecord(key.encode(), None if value is None else value.encode())
        PartitionLogPort(self.partition(), read_bytes=1, turns=Turns(1)).append([record], NOW_MS)

    async def read_on(self) -> None:
        await self.latest.read_on(read_bytes=200)

    async def loaded(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        """What an election reads: {offset: (key, value)}."""
        found: dict[int, tuple[bytes | None, bytes | None]] = {}

        def visit(offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
            assert isinstance(entry, ShardRecord)
            assert leader_epoch == 0
            found[offset] = (entry.key, entry.value)

        await self.port.replay(visit)
        return found


async def test_the_last_record_of_each_key_is_kept_and_the_rest_read(tmp_path: Path) -> None:
    rig = Kept(tmp_path)
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", None)):
        rig.write(key, value)
    rig.gates[0].open()
    await rig.read_on()
    assert (len(rig.latest), rig.latest.kept_to()) == (2, 5)
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
    assert rig.latest.kept_to() == 1
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
    assert (len(rig.latest), rig.latest.kept_to()) == (0, 0)


async def test_what_lies_below_the_start_of_the_log_is_not_there(tmp_path: Path) -> None:
    rig = Kept(tmp_path)
    for key in ("a", "b", "c"):
        rig.write(key, "1")
    rig.gates[0].open()
    await rig.read_on()
    rig.partition().log.move_log_start(1)
    assert await rig.loaded() == {1: (b"b", b"1"), 2: (b"c", b"1")}


async def test_a_long_log_is_read_beside_everything_else(tmp_path: Path) -> None:
    rig = Kept(tmp_path)
    for number in range(3 * RECORDS_AT_A_TIME):
        rig.write(f"k{number}", "1")
    rig.gates[0].open()
    loading = asyncio.ensure_future(rig.loaded())
    turns = 0
    while not loading.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 3
    assert len(loading.result()) == 3 * RECORDS_AT_A_TIME
    await rig.read_on()
    assert len(await rig.loaded()) == 3 * RECORDS_AT_A_TIME


async def test_the_shortest_goes_first_and_a_turn_that_nobody_takes_is_passed_on() -> None:
    turns = Turns(1)
    await turns.take(1)
    order: list[str] = []

    async def waits(name: str, records: int) -> None:
        await turns.take(records)
        order.append(name)

    tasks = [asyncio.ensure_future(waits(name, size)) for name, size in (("long", 9), ("gone", 1), ("short", 2))]
    await asyncio.sleep(0)
    turns.give()
    tasks[1].cancel()  # it has been given the turn, and does not come any more
    for _ in range(3):
        await asyncio.sleep(0)
    assert order == ["short"]
    turns.give()
    await tasks[0]
    turns.give()
    await turns.take(5)
    assert order == ["short", "long"]
