from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from protocol.errors import ErrorCode, Refusal
from runtime.engine import Engine, LoadCancelled
from runtime.shard import Again, Decision, EngineLimits, EngineState, Loaded, Marker, ShardRecord, Timer
from tests.support.fake_shard_log import FakeClock, FakeShardLog

TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Put:
    key: str
    value: int


@dataclass(frozen=True)
class Get:
    key: str


@dataclass(frozen=True)
class Add:
    """Waits until the cell has at least 20."""

    key: str
    value: int


@dataclass(frozen=True)
class Mark:
    """An effect."""

    key: str
    value: int


@dataclass
class Cells:
    """A shard of counters: Put of 0 is refused, of 13 is a bug in decide, of 99 breaks apply, of 7 sets a timer.

    Put waits while the cell has something uncommitted; Get never does. Put of 50 writes, and is decided once more.
    """

    values: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    committed: int = 0
    decided_on: list[int] = field(default_factory=list)

    def decide(self, command: Put | Get | Add, now_ms: int) -> Decision[int] | Again:
        if isinstance(command, Get):
            return Decision(self.values.get(command.key, 0))
        if isinstance(command, Add):
            if self.values.get(command.key, 0) < 20:
                return Again(command.key, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))
            total = self.values[command.key] + command.value
            return Decision(total, records=(ShardRecord(command.key.encode(), str(total).encode()),))
        if command.value == 0:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        if command.value == 13:
            raise ZeroDivisionError
        if self.offsets.get(command.key, -1) >= self.committed:
            return Again(command.key, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))
        record = ShardRecord(command.key.encode(), str(command.value).encode())
        if command.value == 50 and self.values.get(command.key) != 50:
            again = Again(command.key, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))
            return Decision(again, records=(record,), keys=(command.key,), effects=(Mark(command.key, 49),))
        timers = (Timer(command.key, now_ms + 1_000, Put(command.key, 8)),) if command.value == 7 else ()
        return Decision(
            command.value,
            records=(record,),
            effects=(Mark(command.key, command.value),),
            timers=timers,
            keys=(command.key,),
        )

    def apply(self, offset: int, record: ShardRecord, leader_epoch: int) -> None:
        assert record.key is not None
        assert record.value is not None
        if record.value == b"99":
            raise RuntimeError("a bug in apply")
        self.values[record.key.decode()] = int(record.value)
        self.offsets[record.key.decode()] = offset

    def apply_marker(self, offset: int, marker: Marker, leader_epoch: int) -> None:
        self.values["markers"] = self.values.get("markers", 0) + 1

    def on_committed(self, high_watermark: int) -> None:
        assert high_watermark >= self.committed
        self.committed = high_watermark

    def on_loaded(self, leader_epoch: int, now_ms: int) -> Loaded:
        return Loaded(effects=tuple(Mark(key, value) for key, value in self.values.items()))

    def append_refusal(self, error: ErrorCode) -> ErrorCode:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.REQUEST_TIMED_OUT else error


class Rig:
    def __init__(self, log: FakeShardLog | None = None, *, lag: bool = False, wait_ms_max: int = 1_000) -> None:
        self.log = log or FakeShardLog(lag=lag)
        self.clock = FakeClock()
        self.effects: list[Mark] = []
        self.failures: list[BaseException] = []
        self.dropped = 0
        self.cells = Cells()
        self.engine: Engine[Put | Get | Add, int] = Engine(
            self.cells,
            self.log,
            clock=self.clock,
            on_effect=self.effects.append,
            on_failure=lambda _name, failure: self.failures.append(failure),
            on_dropped=self._on_dropped,
            name="cells-0",
            limits=EngineLimits(wait_ms_max=wait_ms_max, waiting_max=2, uncommitted_max=8),
        )

    def _on_dropped(self) -> None:
        self.dropped += 1

    async def loaded(self) -> Rig:
        await self.engine.load(self.log.leader_epoch)
        return self

    def put(self, key: str, value: int, timeout_ms: int = TIMEOUT_MS) -> asyncio.Future[int]:
        return self.engine.submit(Put(key, value), timeout_ms=timeout_ms)

    def get(self, key: str, timeout_ms: int = TIMEOUT_MS) -> asyncio.Future[int]:
        return self.engine.submit(Get(key), timeout_ms=timeout_ms)


def refused(future: asyncio.Future[int]) -> ErrorCode:
    exception = future.exception()
    assert isinstance(exception, Refusal)
    return exception.error


async def test_an_answer_is_there_on_return_when_nothing_is_uncommitted() -> None:
    rig = await Rig().loaded()
    future = rig.put("a", 1)
    assert future.done()
    assert future.result() == 1
    assert rig.effects == [Mark("a", 1)]
    assert rig.get("a").result() == 1


async def test_answers_effects_refusals_and_reads_wait_for_the_high_watermark_in_order() -> None:
    rig = await Rig(lag=True).loaded()
    put, refusal, read = rig.put("a", 1), rig.put("b", 0), rig.get("a")
    assert not put.done()
    assert not refusal.done()
    assert not read.done()
    assert rig.effects == []
    rig.log.commit()
    assert (put.result(), refused(refusal), read.result()) == (1, ErrorCode.INVALID_REQUEST, 1)
    assert rig.effects == [Mark("a", 1)]


async def test_a_partly_advanced_watermark_releases_what_it_passed_and_no_more() -> None:
    rig = await Rig(lag=True).loaded()
    first, second = rig.put("a", 1), rig.put("b", 2)
    rig.log.commit(upto=1)
    assert first.done()
    assert not second.done()
    assert rig.effects == [Mark("a", 1)]


async def test_at_the_deadline_the_error_is_answered_and_the_state_commits_later() -> None:
    rig = await Rig(lag=True).loaded()
    future = rig.put("a", 1, timeout_ms=1)
    with pytest.raises(Refusal) as refusal:
        await future
    assert refusal.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.cells.values == {"a": 1}
    assert rig.effects == []
    rig.log.commit()
    assert rig.effects == [Mark("a", 1)]
    assert rig.get("a").result() == 1


async def test_refused_before_writing_changes_nothing() -> None:
    rig = await Rig().loaded()
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused(rig.put("a", 7)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.cells.values == {}
    assert rig.effects == []
    assert rig.engine.timers == 0


async def test_a_command_waits_in_its_keys_queue_and_goes_on_when_the_key_is_committed() -> None:
    rig = await Rig(lag=True).loaded()
    first, second, third = rig.put("a", 1), rig.put("a", 2), rig.put("a", 3)
    assert rig.engine.waiting == 2
    rig.log.commit()
    assert first.done()
    assert not second.done()  # appended by the wake-up, itself uncommitted now
    assert rig.engine.waiting == 1
    rig.log.commit()
    rig.log.commit()
    assert (second.result(), third.result()) == (2, 3)
    assert rig.engine.waiting == 0


async def test_a_queue_is_bounded_in_length_and_time() -> None:
    rig = await Rig(lag=True, wait_ms_max=5).loaded()
    first = rig.put("a", 1)
    queued, queued_too, one_too_many = rig.put("a", 2), rig.put("a", 3), rig.put("a", 4)
    assert refused(one_too_many) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not queued.done()
    with pytest.raises(Refusal):
        await queued
    with pytest.raises(Refusal):
        await queued_too
    assert rig.engine.waiting == 0
    rig.log.commit()
    assert first.result() == 1
    assert rig.cells.values == {"a": 1}


async def test_the_time_in_a_queue_ends_with_the_wait_and_not_during_the_commit() -> None:
    rig = await Rig(lag=True, wait_ms_max=20).loaded()
    first, second = rig.put("a", 1), rig.put("a", 2)
    rig.log.commit()
    assert first.done()
    await asyncio.sleep(0.04)
    assert not second.done()  # decided and appended: the waiting time counts no longer
    rig.log.commit()
    assert second.result() == 2


async def test_a_cancelled_command_in_a_queue_is_not_decided() -> None:
    rig = await Rig(lag=True).loaded()
    rig.put("a", 1)
    rig.put("a", 2).cancel()
    rig.log.commit()
    assert rig.cells.values == {"a": 1}


async def test_too_much_uncommitted_is_refused() -> None:
    rig = await Rig(lag=True).loaded()
    for number in range(8):
        rig.put(f"key-{number}", 1)
    assert refused(rig.put("late", 1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "late" not in rig.cells.values


async def test_a_command_may_write_first_and_be_decided_again_when_that_is_committed() -> None:
    rig = await Rig(lag=True).loaded()
    future = rig.put("a", 50)
    assert rig.effects == []
    rig.log.commit()
    assert not future.done()
    assert rig.effects == [Mark("a", 49)]
    rig.log.commit()
    assert future.result() == 50
    assert rig.effects == [Mark("a", 49), Mark("a", 50)]


async def test_a_bug_in_decide_fails_one_caller_only() -> None:
    rig = await Rig().loaded()
    assert refused(rig.put("a", 13)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert isinstance(rig.failures[0], ZeroDivisionError)
    assert rig.put("a", 1).result() == 1


@pytest.mark.parametrize("how", ["io", "apply"])
async def test_an_io_error_or_a_bug_in_apply_drops_the_shard(how: str) -> None:
    rig = await Rig(lag=True).loaded()
    parked, waiting = rig.put("a", 1), rig.put("a", 2)
    rig.log.broken = how == "io"
    assert refused(rig.put("b", 99)) is ErrorCode.NOT_COORDINATOR
    assert refused(parked) is ErrorCode.NOT_COORDINATOR
    assert refused(waiting) is ErrorCode.NOT_COORDINATOR
    assert rig.engine.state is EngineState.CLOSED
    assert rig.dropped == 1
    assert len(rig.failures) == 1
    assert rig.log.subscribers == []
    assert refused(rig.get("a")) is ErrorCode.NOT_COORDINATOR


async def test_lost_leadership_answers_everything_and_issues_nothing() -> None:
    rig = await Rig(lag=True).loaded()
    parked, waiting = rig.put("a", 7), rig.put("a", 2)
    rig.engine.unload()
    rig.engine.unload()
    assert refused(parked) is ErrorCode.NOT_COORDINATOR
    assert refused(waiting) is ErrorCode.NOT_COORDINATOR
    rig.log.commit()
    assert rig.effects == []
    assert rig.engine.timers == 0
    assert rig.dropped == 0


async def test_loading_replays_the_log_and_effects_wait_for_what_was_found_in_it() -> None:
    before = await Rig(lag=True).loaded()
    before.put("a", 1)
    before.put("b", 2)
    rig = await Rig(before.log.successor()).loaded()
    assert rig.cells.values == {"a": 1, "b": 2}
    rig.log.commit(upto=1)
    assert rig.effects == []
    rig.log.commit()
    assert rig.effects == [Mark("a", 1), Mark("b", 2)]


async def test_a_waiting_command_is_looked_at_again_when_its_key_is_written() -> None:
    rig = await Rig(lag=True).loaded()
    rig.put("a", 1)
    adding = rig.engine.submit(Add("a", 5), timeout_ms=TIMEOUT_MS)
    assert rig.engine.waiting == 1
    rig.log.lag = False
    rig.log.commit(upto=1)
    assert (adding.done(), rig.cells.values) == (False, {"a": 1})
    rig.log.lag = True
    rig.put("a", 20)  # what it waits for: written, and not committed
    assert (adding.done(), rig.cells.values) == (False, {"a": 25})
    rig.log.commit()
    assert adding.result() == 25


async def test_commands_wait_for_the_load_for_a_bounded_time() -> None:
    before = await Rig().loaded()
    before.put("a", 1)
    rig = Rig(before.log.successor(), wait_ms_max=5)
    early, impatient = rig.get("a"), rig.engine.submit(Get("a"), timeout_ms=TIMEOUT_MS, wait_ms=0)
    with pytest.raises(Refusal) as refusal:
        await impatient
    assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not early.done()
    await rig.loaded()
    assert early.result() == 1
    late = Rig(before.log.successor(), wait_ms_max=1).get("a")
    with pytest.raises(Refusal) as refusal:
        await late
    assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_unloading_cancels_the_load_and_answers_who_waited_for_it() -> None:
    before = await Rig().loaded()
    before.put("a", 1)
    rig = Rig(before.log.successor())
    waiting = rig.get("a")
    rig.log.before_replay = rig.engine.unload
    with pytest.raises(LoadCancelled):
        await rig.loaded()
    assert refused(waiting) is ErrorCode.NOT_COORDINATOR
    assert refused(rig.get("a")) is ErrorCode.NOT_COORDINATOR


async def test_what_the_log_held_at_election_has_to_be_committed_before_anything_is_decided() -> None:
    before = await Rig(lag=True).loaded()
    before.put("a", 1)
    before.put("b", 2)
    rig = await Rig(before.log.successor()).loaded()
    early = [rig.put("c", 3), rig.get("c"), rig.put("a", 0)]
    rig.log.commit(upto=1)
    assert (rig.engine.waiting, len(rig.log.batches), rig.effects) == (3, 0, [])
    rig.log.commit()
    assert rig.effects == [Mark("a", 1), Mark("b", 2)]
    rig.log.commit()
    assert [early[0].result(), early[1].result(), refused(early[2])] == [3, 3, ErrorCode.INVALID_REQUEST]


async def test_what_waits_for_the_commit_of_the_load_ends_with_the_leadership() -> None:
    before = await Rig(lag=True).loaded()
    before.put("a", 7)
    rig = await Rig(before.log.successor()).loaded()
    waiting = rig.get("a")
    rig.engine.unload()
    rig.log.commit()
    assert refused(waiting) is ErrorCode.NOT_COORDINATOR
    assert (rig.effects, rig.log.subscribers) == ([], [])


async def test_a_log_that_cannot_be_read_closes_the_engine() -> None:
    rig = Rig()
    rig.log.broken = True
    with pytest.raises(OSError, match="disk"):
        await rig.loaded()
    assert rig.engine.state is EngineState.CLOSED


async def test_markers_in_the_log_reach_the_core() -> None:
    log = FakeShardLog()
    log.entries = [(0, Marker(1, 2, 3, commit=True), 0), (1, ShardRecord(b"a", b"5"), 0)]
    log.commit()
    rig = await Rig(log).loaded()
    assert rig.cells.values == {"markers": 1, "a": 5}


async def test_a_command_submitted_by_an_effect_follows_in_order() -> None:
    rig = await Rig().loaded()
    seen: list[int] = []

    def on_effect(mark: Mark) -> None:
        seen.append(mark.value)
        if mark.value < 4:
            rig.engine.tell(Put("a", mark.value + 1))

    rig.engine._on_effect = on_effect
    assert rig.put("a", 1).result() == 1
    assert seen == [1, 2, 3, 4]


async def test_a_timer_comes_back_as_a_command_when_the_wall_clock_says_so() -> None:
    rig = await Rig().loaded()
    rig.put("a", 7)
    rig.engine._timers._expire()
    assert rig.cells.values == {"a": 7}
    rig.clock.now_ms += 1_000
    rig.engine._timers._expire()
    assert rig.cells.values == {"a": 8}
