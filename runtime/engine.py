"""Run one replicated shard: load its state, decide commands, append and apply records, reply after the commit.

One engine serves one leader epoch of one log partition: `load` and `unload` are called once. If the broker becomes
leader again, it creates a new engine. All calls run on the event loop, so a shard has one owner and needs no lock.

The engine keeps these rules for all cores:

- The records of a decision are one atomic batch. Directly after the append, the engine makes the soft changes of the
  decision and applies its records. The next command sees both.
- Each reply, refusals and reads included, and each effect waits until the high watermark reaches the log end at the
  time of the decision. They are released in the order of the decisions.
- Records read at load can be lost until the high watermark has passed them. Commands that arrive before that wait for a
  bounded time. The engine then refuses them, because the shard is loading.
- If the log refuses a batch before it writes anything, nothing changes, except for soft changes that survive it. The
  command of a timer is decided again after TIMER_RETRY_MS.
- If a batch is not committed within the time-out of its request, the reply is an error. The batch stays applied, and
  its effects follow when it is committed. There is no undo.
- After an I/O error or an exception from `apply`, memory and log can differ. The engine drops the shard, and the shard
  is loaded again.
"""

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from odradek.invariants.invariant import CHECKS
from odradek.invariants.shard import (
    ENGINE_APPEND_ORDER,
    ENGINE_COMMITTED,
    ENGINE_LOADED_ONCE,
    ENGINE_NOT_REENTERED,
    ENGINE_REPLY_COMMITTED,
)
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.runtime.calls import Call, Parked
from odradek.runtime.clock import Clock
from odradek.runtime.log_port import ShardLog
from odradek.runtime.shard import (
    Decision,
    EffectHandler,
    EngineLimits,
    EngineState,
    ExpiryCommand,
    FailureHandler,
    Loaded,
    Marker,
    RetryAfter,
    Shard,
    ShardRecord,
    Timer,
    Unavailable,
)
from odradek.runtime.timers import TimerQueue, TimerTurns
from odradek.runtime.waiting import WaitingCalls

C = TypeVar("C")
R = TypeVar("R")

DEFAULT_LIMITS: Final = EngineLimits()
DEFAULT_UNAVAILABLE: Final = Unavailable()
TIMED_OUT: Final = ErrorCode.REQUEST_TIMED_OUT
TIMER_RETRY_MS: Final = 500
"""Delay in ms before the command of a timer is decided again, after the log has refused its records."""


class LoadCancelled(Exception):
    """The engine was unloaded before it was loaded."""


class Engine(Generic[C, R]):
    """Driver of one `Shard` on one `ShardLog` for one leader epoch."""

    def __init__(
        self,
        shard: Shard[C, R],
        log: ShardLog,
        *,
        clock: Clock,
        on_effect: EffectHandler,
        on_failure: FailureHandler,
        on_bug: FailureHandler | None = None,
        on_dropped: Callable[[], None] = lambda: None,
        name: str,
        limits: EngineLimits = DEFAULT_LIMITS,
        unavailable: Unavailable = DEFAULT_UNAVAILABLE,
        turns: TimerTurns | None = None,
    ) -> None:
        """Create an engine that serves `shard` on `log` after `load`.

        `on_effect` and `on_dropped` run on the event loop and must not raise. `on_dropped` reports that the engine has
        dropped the shard after an I/O error or a bug. The shard may be loaded again in a new engine. `unload` does not
        call `on_dropped`. `on_bug` receives the exceptions of `decide`, which fail one command alone, and `on_failure`
        all others. Without `on_bug`, `on_failure` receives both. `turns` bounds the time in which the timers of all
        shards of a coordinator fire.
        """
        self.name = name
        self.shard = shard
        self.state = EngineState.NEW
        self.leader_epoch = -1
        self._log = log
        self._clock = clock
        self._on_effect = on_effect
        self._on_failure = on_failure
        self._on_bug = on_failure if on_bug is None else on_bug
        self._on_dropped = on_dropped
        self._limits = limits
        self._unavailable = unavailable
        self._timers = TimerQueue(clock, self._on_timer, turns=turns)
        self._parked: deque[Parked] = deque()
        self._waiting = WaitingCalls(limits, unavailable.loading)
        self._written: deque[Hashable] = deque()
        self._loaded = Loaded()
        self._end = 0
        self._committed = 0
        self._changing = False
        self._releasing = False
        self._loop: AbstractEventLoop | None = None

    # ---- lifecycle --------------------------------------------------------------------------------------------------

    async def load(self, leader_epoch: int) -> None:
        """Rebuild the state from the log. Return when the whole log was read.

        The shard becomes active when the high watermark has reached the log end that was found. After an exception the
        engine is closed.

        Raises:
            LoadCancelled: `unload` was called before or during the load.
            OSError, Refusal, Malformed: The log cannot be read.
            Exception: The core has a bug.
        """
        if self.state is EngineState.CLOSED:  # `unload` can run before the task of this load starts
            raise LoadCancelled(self.name)
        if self.state is not EngineState.NEW:
            raise ENGINE_LOADED_ONCE.violated(engine=self.name, state=self.state)
        self.state = EngineState.LOADING
        self.leader_epoch = leader_epoch
        self._loop = get_running_loop()
        try:
            await self._log.replay(self._visit)
            if self.state is not EngineState.LOADING:
                raise LoadCancelled(self.name)
            self._loaded = self.shard.on_loaded(leader_epoch, self._clock.wall_ms())
            self._end = self._log.log_end_offset
            self.state = EngineState.CATCHING_UP
            self._log.subscribe(self._on_high_watermark)
            self._on_high_watermark(self._log.high_watermark)
        except BaseException:
            self.unload()
            raise

    def unload(self) -> None:
        """Close the shard when the broker is no longer its leader, or stops. Refuse waiting commands. Idempotent."""
        if self.state is not EngineState.CLOSED:
            self._log.unsubscribe(self._on_high_watermark)
            self._close()

    def _serve(self) -> None:
        # Effects of loaded state are issued only now: a marker must not be sent before its Prepare record is committed.
        loaded, self._loaded = self._loaded, Loaded()
        self.state = EngineState.ACTIVE
        self._parked.append(Parked(self._end, None, None, Decision(None, effects=loaded.effects)))
        for timer in loaded.timers:
            self._timers.set(timer)
        self._release()
        for call in self._waiting.take_held():
            call.cancel_deadline()
            if self.state is not EngineState.ACTIVE:
                call.reply(Refusal(self._unavailable.closed))
            elif not call.done:
                self._start(call)

    def _close(self) -> None:
        """Refuse every command that waits for its commit, for a key, or for the load."""
        self.state = EngineState.CLOSED
        self._timers.clear()
        parked, self._parked = self._parked, deque()
        calls = [entry.call for entry in parked if entry.call is not None]
        for call in (*calls, *self._waiting.take_all()):
            call.reply(Refusal(self._unavailable.closed))

    # ---- commands ---------------------------------------------------------------------------------------------------

    def submit(self, command: C, *, timeout_ms: int, wait_ms: int | None = None, guard: int = 0) -> "Future[R]":
        """Decide `command` now. The future has the reply when all records that the reply depends on are committed.

        The future is done on return if nothing is uncommitted. It raises Refusal if the command is refused. After
        `timeout_ms` it raises `append_refusal(REQUEST_TIMED_OUT)` of the core. `wait_ms` bounds the time in a queue;
        the default is that of the engine. `guard` is passed to `ShardLog.append`. Cancelling the future drops the reply
        and changes nothing else.
        """
        loop = self._loop or get_running_loop()
        future: Future[R] = loop.create_future()
        if self.state is EngineState.CLOSED:
            future.set_exception(Refusal(self._unavailable.closed))
        elif len(self._parked) >= self._limits.uncommitted_max:
            future.set_exception(Refusal(self.shard.append_refusal(TIMED_OUT)))
        else:
            wait_s_max = (self._limits.wait_ms_max if wait_ms is None else wait_ms) / 1_000
            call = Call(command, future, loop.time() + timeout_ms / 1_000, wait_s_max, guard)
            if self.state is EngineState.ACTIVE:
                self._start(call)
            else:
                self._waiting.hold(call, loop)
        return future

    def post(self, command: C) -> None:
        """Decide a command without a reply. It is dropped if the shard is not active, or if it is refused."""
        self._on_timer(None, command)

    def _on_timer(self, key: Hashable, command: C) -> None:
        if self.state is EngineState.ACTIVE:
            assert self._loop is not None
            wait_s_max = self._limits.wait_ms_max / 1_000
            self._start(Call(command, None, self._loop.time() + wait_s_max, wait_s_max, timer=key))

    def mark(self, marker: Marker, write: Callable[[], int]) -> None:
        """Append a transaction marker by `write` and apply it, between two commands.

        `write` returns the offset of the marker, or raises Refusal if it has written nothing.

        Raises:
            Refusal: `write` has refused, or the shard is not active: a replay that has fixed its end would miss the
                marker.
        """
        if self.state is not EngineState.ACTIVE:
            loading = self.state.is_before_active
            raise Refusal(self._unavailable.loading if loading else self._unavailable.closed)
        if self._changing:
            raise ENGINE_NOT_REENTERED.violated(engine=self.name, marker=marker)
        self._changing = True
        try:
            offset = write()
            if offset < self._end:
                raise ENGINE_APPEND_ORDER.violated(engine=self.name, offset=offset, previous_end=self._end)
            self.shard.apply_marker(offset, marker, self.leader_epoch)
        except Refusal:
            raise
        except Exception as broken:
            self._on_failure(self.name, broken)
            self._drop()
            raise Refusal(self._unavailable.closed) from broken
        finally:
            self._changing = False
        self._end = offset + 1  # replies that depend on the marker wait for its commit
        self._release()

    @property
    def uncommitted(self) -> int:
        """Number of replies and effects that wait for the high watermark."""
        return len(self._parked)

    @property
    def waiting(self) -> int:
        """Number of commands in queues, including those that wait for the load."""
        return len(self._waiting)

    @property
    def timers(self) -> int:
        """Number of timers that are set."""
        return len(self._timers)

    # ---- decide, append, apply --------------------------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        retry = self._decide(call)
        if retry is not None:
            assert self._loop is not None
            self._waiting.wait(call, retry, self._loop)
        self._release()

    def _decide(self, call: Call) -> RetryAfter | None:
        # The scenario that the check excludes:
        # 1. The log runs a callback while it appends records.
        # 2. The callback submits a command.
        # 3. The command is decided on a state without those records, although its own records follow them.
        if self._changing:
            raise ENGINE_NOT_REENTERED.violated(engine=self.name, command=call.command)
        wall_ms = self._clock.wall_ms()
        now_ms = self._clock.expiry_ms() if isinstance(call.command, ExpiryCommand) else wall_ms
        try:
            decision = self.shard.decide(call.command, now_ms)
        except Refusal as refusal:
            self._park(call, refusal, None)
            return None
        except Exception as bug:  # noqa: BLE001  `decide` changes nothing, so only this command fails
            self._on_bug(self.name, bug)
            self._park(call, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR), None)
            return None
        if isinstance(decision, RetryAfter):
            return decision
        if decision.records or decision.soft:
            if not self._append_and_apply(call, decision, wall_ms):
                return None
            if decision.records:
                self._written.extend(decision.keys)
        for timer in decision.timers:
            self._timers.set(timer)
        if isinstance(decision.reply, RetryAfter):
            self._parked.append(Parked(self._end, None, None, decision))
            return decision.reply
        self._park(call, decision.reply, decision)
        return None

    def _append_and_apply(self, call: Call, decision: "Decision[Any]", wall_ms: int) -> bool:
        """Append the records, make the soft changes, apply the records.

        Return False if that fails. `call` has a reply or a parked refusal then.
        """
        records, end = decision.records, self._end
        self._changing = True
        try:
            if records:
                end = self._log.append(records, wall_ms, call.guard, deferred=decision.deferred)
                if end - len(records) < self._end:
                    raise ENGINE_APPEND_ORDER.violated(engine=self.name, end=end, previous_end=self._end)
            for change in decision.soft:
                change()
            offset = end - len(records)
            for record in records:
                self.shard.apply(offset, record, self.leader_epoch)
                offset += 1
        except Refusal as refusal:
            if decision.soft_survives:
                for change in decision.soft:
                    change()
            self._timers.restore(Timer(call.timer, command=call.command, delay_ms=TIMER_RETRY_MS))
            self._park(call, Refusal(self.shard.append_refusal(refusal.error)), None)
            return False
        except Exception as broken:  # noqa: BLE001  OSError, or a bug of the core: log and memory can differ
            self._on_failure(self.name, broken)
            self._drop()
            call.reply(Refusal(self._unavailable.closed))
            return False
        finally:
            self._changing = False
        if self.state is not EngineState.ACTIVE:  # `unload` was called during the append
            call.reply(Refusal(self._unavailable.closed))
            return False
        self._end = end
        return True

    def _park(self, call: Call, reply: Any, decision: "Decision[Any] | None") -> None:
        self._parked.append(Parked(self._end, call, reply, decision))
        call.cancel_deadline()  # the call may have a deadline from a queue
        if self._end > self._log.high_watermark and call.future is not None:
            assert self._loop is not None
            call.set_deadline(self._loop, call.deadline_s, self._commit_expired)

    def _drop(self) -> None:
        self.unload()
        self._on_dropped()

    # ---- commit -----------------------------------------------------------------------------------------------------

    def _on_high_watermark(self, high_watermark: int) -> None:
        if self.state is EngineState.CATCHING_UP:
            if high_watermark >= self._end:
                self._serve()
        elif not self._changing:
            self._release()

    def _release(self) -> None:
        if self._releasing or self.state is not EngineState.ACTIVE:
            return  # called from an effect or a decision inside of the loop below, which releases the new entries, too
        self._releasing = True
        try:
            while self.state is EngineState.ACTIVE:
                high_watermark = self._log.high_watermark
                if high_watermark > self._committed:
                    if CHECKS.expensive and high_watermark > self._log.log_end_offset:
                        raise ENGINE_COMMITTED.violated(
                            engine=self.name, high_watermark=high_watermark, log_end_offset=self._log.log_end_offset
                        )
                    self._committed = high_watermark
                    self.shard.on_committed(high_watermark)
                if self._written:
                    self._wake(self._written.popleft())
                elif self._parked and self._parked[0].end <= self._committed:
                    self._finish(self._parked.popleft())
                else:
                    return
        finally:
            self._releasing = False

    def _finish(self, entry: Parked) -> None:
        if CHECKS.expensive and entry.end > self._log.high_watermark:
            raise ENGINE_REPLY_COMMITTED.violated(
                engine=self.name, end=entry.end, high_watermark=self._log.high_watermark
            )
        if entry.call is not None:
            entry.call.reply(entry.reply)
        for effect in entry.effects:
            self._on_effect(effect)
        for key in entry.keys:
            self._wake(key)

    def _commit_expired(self, call: Call) -> None:
        call.reply(Refusal(self.shard.append_refusal(TIMED_OUT)))

    def _wake(self, key: Hashable) -> None:
        self._waiting.wake(key, lambda call: self._decide(call) is not None)

    # ---- load -------------------------------------------------------------------------------------------------------

    def _visit(self, offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
        if self.state is not EngineState.LOADING:
            raise LoadCancelled(self.name)
        try:
            if isinstance(entry, Marker):
                self.shard.apply_marker(offset, entry, leader_epoch)
            else:
                self.shard.apply(offset, entry, leader_epoch)
        except Malformed as malformed:
            raise Malformed(f"{self.name} at offset {offset}: {malformed}") from malformed
