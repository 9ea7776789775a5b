"""Manage the shards of a topic whose leader is this broker: one engine per partition, from election to resignation.

If an engine drops its shard after an I/O error or a bug, the shard is loaded again in a new engine, as long as this
broker is the leader.
"""

from asyncio import TimerHandle, get_running_loop, sleep
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import structlog

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import Clock
from odradek.runtime.engine import DEFAULT_LIMITS, Engine, LoadCancelled
from odradek.runtime.log_port import ShardLog
from odradek.runtime.shard import Effect, EngineLimits, EngineState, FailureHandler, LoadReport, Shard
from odradek.runtime.tasks import Spawn
from odradek.runtime.timers import TimerTurns

RELOAD_BACKOFF_S: Final = 1.0
"""Delay in seconds before a dropped shard is loaded again. It doubles with each consecutive failure."""
RELOAD_BACKOFF_S_MAX: Final = 60.0
"""Maximum delay in seconds before a dropped shard is loaded again."""

S = TypeVar("S", bound=Shard[Any, Any])

_logger = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class LedShard(Generic[S]):
    """Shard whose leader is this broker. After a drop it gets a new core and a new engine."""

    shard: int
    leader_epoch: int
    log: ShardLog
    core: S
    engine: Engine[Any, Any]
    reload: TimerHandle | None = None
    failed_loads: int = 0


def _no_reports(_core: object) -> Sequence[LoadReport]:
    return ()


class LedShards(Generic[S]):
    """Shards of one topic whose leader is this broker. All calls run on the event loop."""

    def __init__(
        self,
        topic: str,
        new_core: Callable[[], S],
        *,
        clock: Clock,
        spawn: Spawn,
        is_assigned: Callable[[int], bool],
        on_effect: Callable[[LedShard[S], Effect], None],
        on_lost: Callable[[int], None],
        on_failure: FailureHandler,
        limits: EngineLimits = DEFAULT_LIMITS,
        take_reports: Callable[[S], Sequence[LoadReport]] = _no_reports,
    ) -> None:
        """Create a registry without shards.

        - `is_assigned(shard)` returns True if the metadata names this broker as the leader. `on_leadership` follows, or
          is called before `is_assigned` returns.
        - `spawn` runs a task (`Tasks.spawn`).
        - `on_lost(shard)` is called when the engine of the shard has ended, also if a new engine follows. The callee
          drops all state outside of the engine that belongs to it.
        - `on_failure` receives bugs and failed disk operations.
        - `take_reports(core)` returns what the log of the broker must contain about the records of a load.
        """
        self._topic = topic
        self._new_core = new_core
        self._clock = clock
        self._spawn = spawn
        self._is_assigned = is_assigned
        self._on_effect = on_effect
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._limits = limits
        self._take_reports = take_reports
        self._turns = TimerTurns(clock)
        self._led: dict[int, LedShard[S]] = {}
        self._stopped = False

    # ---- leadership -------------------------------------------------------------------------------------------------

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]:
        """Note that this broker is the leader of `shard` in `leader_epoch`, and return a coroutine that loads it.

        Requests wait for the load from now on. The coroutine ends when the shard is loaded, or the load was cancelled
        or has failed. A failed load is tried again.
        """
        led = self._led.get(shard)
        if self._stopped or (led is not None and led.leader_epoch >= leader_epoch):
            return sleep(0)
        if led is not None:
            self._forget(led)
        core = self._new_core()
        led = LedShard(shard, leader_epoch, log, core, self._new_engine(shard, core, log))
        self._led[shard] = led
        return self._load(led)

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None:
        """Note that another broker is the leader of `shard` in `leader_epoch`; None if the replica was removed.

        Ignore the call if this broker is the leader in a later epoch (KAFKA-18137).
        """
        led = self._led.get(shard)
        if led is not None and (leader_epoch is None or led.leader_epoch < leader_epoch):
            del self._led[shard]
            self._forget(led)

    def stop(self) -> None:
        """Unload all shards. Requests are refused with NOT_COORDINATOR from now on."""
        self._stopped = True
        shards, self._led = self._led, {}
        for led in shards.values():
            self._forget(led)

    # ---- look-up ----------------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """True after `stop`."""
        return self._stopped

    def __iter__(self) -> Iterator[LedShard[S]]:
        """Iterate over a copy of all shards, including those that are loading."""
        return iter(list(self._led.values()))

    def get(self, shard: int) -> LedShard[S] | None:
        """Return the shard, or None if this broker is not its leader."""
        return self._led.get(shard)

    def find(self, shard: int) -> LedShard[S]:
        """Return the shard.

        Raises:
            Refusal: COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR, if this broker does not lead the shard yet or at
                all.
        """
        led = self._led.get(shard)
        if led is not None:
            return led
        if self._stopped or not self._is_assigned(shard):
            raise Refusal(ErrorCode.NOT_COORDINATOR)
        led = self._led.get(shard)
        if led is None:
            # After NOT_COORDINATOR the client would look up the coordinator, and FindCoordinator would return this
            # broker.
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

    async def submit_to_all(
        self, command: object, shards: Sequence[LedShard[S]], *, timeout_ms: int
    ) -> list[tuple[LedShard[S], Any]]:
        """Submit `command` to `shards`, and return their replies. Shards that are closed are left out.

        Raise Refusal if a shard has refused.
        """
        replies: list[tuple[LedShard[S], Any]] = []
        refused: Refusal | None = None
        for led, future in [(led, led.engine.submit(command, timeout_ms=timeout_ms)) for led in shards]:
            try:
                replies.append((led, await future))
            except Refusal as refusal:
                if refusal.error is not ErrorCode.NOT_COORDINATOR:
                    # The other futures are awaited nevertheless: asyncio logs each exception that nothing reads.
                    refused = refused or refusal
        if refused is not None:
            raise refused
        return replies

    def all_active(self) -> list[LedShard[S]]:
        """Return all shards.

        Raise Refusal: COORDINATOR_LOAD_IN_PROGRESS if a shard is loading, since the list would be incomplete;
        COORDINATOR_NOT_AVAILABLE after `stop`.
        """
        if self._stopped:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if any(led.engine.state.is_before_active for led in self._led.values()):
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [led for led in self._led.values() if led.engine.state is EngineState.ACTIVE]

    # ---- engines ----------------------------------------------------------------------------------------------------

    def _new_engine(self, shard: int, core: S, log: ShardLog) -> Engine[Any, Any]:
        def on_effect(effect: Effect) -> None:
            led = self._led.get(shard)
            if led is not None and led.engine is engine:
                self._on_effect(led, effect)

        engine: Engine[Any, Any] = Engine(
            core,
            log,
            clock=self._clock,
            on_effect=on_effect,
            on_failure=self._on_failure,
            on_dropped=lambda: self._on_dropped(shard, engine),
            name=f"{self._topic}-{shard}",
            limits=self._limits,
            turns=self._turns,
        )
        return engine

    async def _load(self, led: LedShard[S]) -> None:
        engine = led.engine
        try:
            await engine.load(led.leader_epoch)
        except LoadCancelled:
            return
        except Refusal as refusal:  # the log cannot be read now; the load is tried again
            _logger.info("shard not loaded", shard=engine.name, reason=str(refusal))
            self._schedule_reload(led)
            return
        except Exception as failure:  # noqa: BLE001  a failed disk, a damaged log, or a bug: the load is tried again
            self._on_failure(engine.name, failure)
            self._on_dropped(led.shard, engine)
            return
        led.failed_loads = 0
        for report in self._take_reports(led.core):
            log = _logger.error if report.severe else _logger.warning
            log(report.event, shard=engine.name, reason=report.reason)
        _logger.debug("shard loaded", shard=engine.name, leader_epoch=led.leader_epoch)

    def _on_dropped(self, shard: int, engine: Engine[Any, Any]) -> None:
        """Handle that the engine has dropped its shard."""
        led = self._led.get(shard)
        if led is not None and led.engine is engine:
            self._on_lost(shard)
            self._schedule_reload(led)

    def _forget(self, led: LedShard[S]) -> None:
        led.engine.unload()
        self._on_lost(led.shard)
        if led.reload is not None:
            led.reload.cancel()
            led.reload = None

    def _schedule_reload(self, led: LedShard[S]) -> None:
        if self._led.get(led.shard) is led:
            delay_s = min(RELOAD_BACKOFF_S * 2**led.failed_loads, RELOAD_BACKOFF_S_MAX)
            led.failed_loads += 1
            led.reload = get_running_loop().call_later(delay_s, self._reload, led)

    def _reload(self, led: LedShard[S]) -> None:
        led.core = self._new_core()
        led.engine = self._new_engine(led.shard, led.core, led.log)
        self._spawn(self._load(led), f"load-{led.engine.name}")
