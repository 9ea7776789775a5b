"""The shards that a broker leads: one engine for each led partition of one topic, from election to resignation.

A shard that gives itself up (a broken disk, a bug) is loaded again in a new engine for as long as this broker leads its
partition.
"""

from asyncio import TimerHandle, get_running_loop, sleep
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import structlog

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import Clock
from odradek.runtime.engine import DEFAULT_LIMITS, Engine, LoadCancelled
from odradek.runtime.log_port import ShardLog
from odradek.runtime.shard import Effect, EngineLimits, EngineState, FailureHandler, Shard
from odradek.runtime.tasks import Spawn

RELOAD_BACKOFF_S: Final = 1.0
"""Before a shard that was lost to an I/O error or a bug is loaded again; doubled with every failure in a row."""
RELOAD_BACKOFF_S_MAX: Final = 60.0

S = TypeVar("S", bound=Shard[Any, Any])

_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class Led(Generic[S]):
    """One led partition. A shard that drops itself gets a new core and engine as long as this stands in the table."""

    shard: int
    leader_epoch: int
    log: ShardLog
    core: S
    engine: Engine[Any, Any]
    reload: TimerHandle | None = None
    failed_loads: int = 0


class LedShards(Generic[S]):
    """The led partitions of one topic. Every call is on the loop."""

    def __init__(
        self,
        topic: str,
        new_core: Callable[[], S],
        *,
        clock: Clock,
        spawn: Spawn,
        is_awaited: Callable[[int], bool],
        on_effect: Callable[[Led[S], Effect], None],
        on_lost: Callable[[int], None],
        on_failure: FailureHandler,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        """`is_awaited`: does the metadata say that this broker leads the shard, so that `on_leadership` is to come? `spawn`
        runs a task that somebody owns. `on_lost(shard)`: the engine of the shard has ended, whether or not another one
        follows; what stands outside of it on its behalf is to be dropped. `on_failure` hears of bugs and broken disks.
        """
        self._topic = topic
        self._new_core = new_core
        self._clock = clock
        self._spawn = spawn
        self._is_awaited = is_awaited
        self._on_effect = on_effect
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._limits = limits
        self._led: dict[int, Led[S]] = {}
        self._stopped = False

    # ---- leadership -------------------------------------------------------------------------------------------------

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]:
        """This broker leads the partition `shard` in `leader_epoch`: requests wait for it from now on.

        The coroutine loads it, and ends when it is loaded, or the load was cancelled, or has failed (and will be tried
        again).
        """
        led = self._led.get(shard)
        if self._stopped or (led is not None and led.leader_epoch >= leader_epoch):
            return sleep(0)
        if led is not None:
            self._forget(led)
        core = self._new_core()
        led = Led(shard, leader_epoch, log, core, self._new_engine(shard, core, log))
        self._led[shard] = led
        return self._load(led)

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None:
        """Another broker leads `shard` in `leader_epoch`, or (None) the replica is gone.

        Ignored when this broker has come to lead it in a later epoch meanwhile (KAFKA-18137).
        """
        led = self._led.get(shard)
        if led is not None and (leader_epoch is None or led.leader_epoch < leader_epoch):
            del self._led[shard]
            self._forget(led)

    def stop(self) -> None:
        """Give up every shard: requests are told to look elsewhere."""
        self._stopped = True
        led_shards, self._led = self._led, {}
        for led in led_shards.values():
            self._forget(led)

    # ---- finding ----------------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        return self._stopped

    def __iter__(self) -> Iterator[Led[S]]:
        """Every led shard, loading ones too; safe against changes while iterating."""
        return iter(list(self._led.values()))

    def get(self, shard: int) -> Led[S] | None:
        return self._led.get(shard)

    def find(self, shard: int) -> Led[S]:
        """Raises Refusal for a shard that is not led here."""
        led = self._led.get(shard)
        if led is None:
            # A client that is sent away would be sent back here: it had better stay.
            awaited = not self._stopped and self._is_awaited(shard)
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if awaited else ErrorCode.NOT_COORDINATOR)
        return led

    async def submit_to_all(self, command: object, *, timeout_ms: int) -> list[tuple[Led[S], Any]]:
        """The reply of every shard that decides; one that goes meanwhile is left out. Raises Refusal: what a shard refuses
        with, and COORDINATOR_LOAD_IN_PROGRESS while one of them loads, since it would be missing.
        """
        replies: list[tuple[Led[S], Any]] = []
        for led, future in [(led, led.engine.submit(command, timeout_ms=timeout_ms)) for led in self._all_active()]:
            try:
                replies.append((led, await future))
            except Refusal as refusal:
                if refusal.error is not ErrorCode.NOT_COORDINATOR:
                    raise
        return replies

    def _all_active(self) -> list[Led[S]]:
        if self._stopped:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if any(led.engine.state.is_before_active for led in self._led.values()):
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [led for led in self._led.values() if led.engine.state is EngineState.ACTIVE]

    # ---- life of an engine ------------------------------------------------------------------------------------------

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
        )
        return engine

    async def _load(self, led: Led[S]) -> None:
        engine = led.engine
        try:
            await engine.load(led.leader_epoch)
        except LoadCancelled:
            return
        except Refusal as refusal:  # the log is not served just now
            _log.info("shard not loaded", shard=engine.name, reason=str(refusal))
            self._schedule_reload(led)
            return
        except Exception as failure:  # noqa: BLE001  a broken disk, a damaged log, or a bug: its requests wait for a load
            self._on_failure(engine.name, failure)
            self._on_dropped(led.shard, engine)
            return
        led.failed_loads = 0
        _log.debug("shard loaded", shard=engine.name, leader_epoch=led.leader_epoch)

    def _on_dropped(self, shard: int, engine: Engine[Any, Any]) -> None:
        """The engine has given itself up."""
        led = self._led.get(shard)
        if led is not None and led.engine is engine:
            self._on_lost(shard)
            self._schedule_reload(led)

    def _forget(self, led: Led[S]) -> None:
        led.engine.unload()
        self._on_lost(led.shard)
        if led.reload is not None:
            led.reload.cancel()
            led.reload = None

    def _schedule_reload(self, led: Led[S]) -> None:
        if self._led.get(led.shard) is led:
            delay_s = min(RELOAD_BACKOFF_S * 2**led.failed_loads, RELOAD_BACKOFF_S_MAX)
            led.failed_loads += 1
            led.reload = get_running_loop().call_later(delay_s, self._reload, led)

    def _reload(self, led: Led[S]) -> None:
        led.core = self._new_core()
        led.engine = self._new_engine(led.shard, led.core, led.log)
        self._spawn(self._load(led), f"load-{led.engine.name}")
