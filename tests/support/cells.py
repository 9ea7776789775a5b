"""A shard of counters in an engine on a fake log, for tests of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.engine import Engine
from odradek.runtime.shard import Decision, EngineLimits, ExpiryCommand, Loaded, Marker, RetryAfter, ShardRecord, Timer
from tests.support.fake_shard_log import FakeClock, FakeShardLog

if TYPE_CHECKING:
    import asyncio

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
class Age(ExpiryCommand):
    """Writes a cell, and returns the time of its decision."""


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

    def decide(self, command: Put | Get | Add | Age, now_ms: int) -> Decision[int] | RetryAfter:
        if isinstance(command, Age):
            return Decision(now_ms, records=(ShardRecord(b"aged", b"1"),))
        if isinstance(command, Get):
            return Decision(self.values.get(command.key, 0))
        if isinstance(command, Add):
            if self.values.get(command.key, 0) < 20:
                return RetryAfter(command.key, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))
            total = self.values[command.key] + command.value
            return Decision(total, records=(ShardRecord(command.key.encode(), str(total).encode()),))
        if command.value == 0:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        if command.value == 13:
            raise ZeroDivisionError
        if self.offsets.get(command.key, -1) >= self.committed:
            return RetryAfter(command.key, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))
        record = ShardRecord(command.key.encode(), str(command.value).encode())
        if command.value == 50 and self.values.get(command.key) != 50:
            retry = RetryAfter(command.key, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))
            return Decision(retry, records=(record,), keys=(command.key,), effects=(Mark(command.key, 49),))
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
        self.engine: Engine[Put | Get | Add | Age, int] = Engine(
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
