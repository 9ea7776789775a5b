"""The engine of one replicated shard: load, decide, append, apply, park until committed.

One engine serves one leadership of one log partition: `load` once, `unload` once; whoever leads again makes a new one. Everything
happens on the event loop in plain calls, so a shard has one owner and needs no lock. Rules kept here, not in any core:

- A decision's records are one atomic batch. Right after the append its soft changes are made and the records applied: the
  next command sees both.
- Every answer (refusals and reads too) and every effect waits until the high watermark has passed the log end at the
  time of the decision. They are given in the order of the decisions.
- What is read at load may be lost again with its leader until the high watermark has passed it. Commands that come before
  that wait, for a bounded time, and are told that the shard loads.
- A batch refused before writing changes nothing (but for soft changes that survive it). A batch that is not committed when its request's time is up is
  answered with an error, but stays applied, and its effects follow when it is committed. There is no undo.
  The command of a timer is decided again after a while.
- An I/O error, or an exception out of `apply`, leaves memory and log apart: the shard is dropped, to be loaded again.
"""

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.runtime.calls import Call, Parked, Queues
from odradek.runtime.clock import Clock
from odradek.runtime.log_port import ShardLog
from odradek.runtime.shard import (
    Again,
    Decision,
    EffectHandler,
    EngineLimits,
    EngineState,
    EngineStats,
    FailureHandler,
    Loaded,
    Marker,
    Shard,
    ShardRecord,
    Timer,
    Unavailable,
)
from odradek.runtime.timers import TimerQueue

C = TypeVar("C")
R = TypeVar("R")

NO_LIMITS_GIVEN = EngineLimits()
NO_ANSWERS_GIVEN = Unavailable()
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
TIMER_RETRY_MS = 500  # before the command of a timer is decided again whose records the log has refused


class LoadCancelled(Exception):
    """The engine was unloaded before it was loaded."""


class Engine(Generic[C, R]):
    """Runs one `Shard` on one `ShardLog`."""

    def __init__(
        self,
        shard: Shard[C, R],
        log: ShardLog,
        *,
        clock: Clock,
        on_effect: EffectHandler,
        on_failure: FailureHandler,
        on_dropped: Callable[[], None] = lambda: None,
        name: str,
        limits: EngineLimits = NO_LIMITS_GIVEN,
        unavailable: Unavailable = NO_ANSWERS_GIVEN,
    ) -> None:
        """`on_effect` and `on_dropped` are called on the loop and must not raise.

        `on_dropped` says that the shard has given itself up (I/O error or a bug), and may be loaded again in a new
        engine; it is not called for `unload`.
        """
        self.name = name
        self.shard = shard
        self.state = EngineState.NEW
        self.stats = EngineStats()
        self.leader_epoch = -1
        self._log = log
        self._clock = clock
        self._on_effect = on_effect
        self._on_failure = on_failure
        self._on_dropped = on_dropped
        self._limits = limits
        self._unavailable = unavailable
        self._timers = TimerQueue(clock, self._on_timer)
        self._parked: deque[Parked] = deque()
        self._waiting = Queues()
        self._early: dict[Call, None] = {}
        self._written: deque[Hashable] = deque()
        self._loaded = Loaded()
        self._end = 0
        self._committed = 0
        self._changing = False
        self._releasing = False
        self._loop: AbstractEventLoop | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def load(self, leader_epoch: int) -> None:
        """Rebuild the state from the log; serve as soon as the high watermark has passed what was found in it.

        Returns when the log is read. Raises LoadCancelled when `unload` came in between or first, OSError, Refusal or
        Malformed when the log cannot be read, and whatever a bug of the core raises (the engine is closed then).
        """
        if self.state is EngineState.CLOSED:  # a load has to wait for its turn on the loop, and much may happen before
            raise LoadCancelled(self.name)
        assert self.state is EngineState.NEW, self.state
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
        """Leadership is lost, or the node stops: everything parked or waiting is answered "not here". Idempotent."""
        if self.state is not EngineState.CLOSED:
            self._log.unsubscribe(self._on_high_watermark)
            self._close()

    def _serve(self) -> None:
        # Effects out of the log are issued only now: a marker must never precede its committed prepare.
        loaded, self._loaded = self._loaded, Loaded()
        self.state = EngineState.ACTIVE
        self._parked.append(Parked(self._end, None, None, Decision(None, effects=loaded.effects)))
        for timer in loaded.timers:
            self._timers.set(timer)
        self._release()
        early, self._early = self._early, {}
        for call in early:
            call.disarm()
            if self.state is not EngineState.ACTIVE:
                call.answer(Refusal(self._unavailable.closed))
            elif not call.done:
                self._start(call)

    def _close(self) -> None:
        self.state = EngineState.CLOSED
        self._timers.clear()
        parked, self._parked = self._parked, deque()
        early, self._early = self._early, {}
        calls = [entry.call for entry in parked if entry.call is not None]
        for call in (*calls, *self._waiting.take_all(), *early):
            call.answer(Refusal(self._unavailable.closed))

    # ---- commands ---------------------------------------------------------------------------------------------------

    def submit(self, command: C, *, timeout_ms: int, wait_ms: int | None = None, guard: int = 0) -> "Future[R]":
        """Decide `command` now; the future has the reply, or raises Refusal, once it may be told.

        The future is done on return when nothing is uncommitted. After `timeout_ms` it raises what the core makes of
        REQUEST_TIMED_OUT; `wait_ms` is how long it may wait in a queue, where the limit of the engine is too long. `guard`
        is shown to the log with the records (see ShardLog.append). Cancelling the future changes nothing but that nobody hears the answer.
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
                self._hold(call)
        return future

    def tell(self, command: C) -> None:
        """Decide a command that nobody waits for. Dropped, like any refused one, when the shard is not active."""
        self._on_timer(None, command)

    def _on_timer(self, key: Hashable, command: C) -> None:
        if self.state is EngineState.ACTIVE:
            assert self._loop is not None
            wait_s_max = self._limits.wait_ms_max / 1_000
            self._start(Call(command, None, self._loop.time() + wait_s_max, wait_s_max, timer=key))

    def mark(self, marker: Marker, write: Callable[[], int]) -> None:
        """Have `write` put the end of a transaction into the log, and take it in, between two commands.

        `write` returns the marker's offset, or raises Refusal when there is nothing to take in. Raises Refusal also before
        the shard is active: a replay that has fixed its end would miss the marker.
        """
        if self.state is not EngineState.ACTIVE:
            loading = self.state.is_before_active
            raise Refusal(self._unavailable.loading if loading else self._unavailable.closed)
        assert not self._changing, f"{self.name}: a marker inside an append"
        self._changing = True
        try:
            offset = write()
            self.shard.apply_marker(offset, marker, self.leader_epoch)
        except Refusal:
            raise
        except Exception as broken:
            self._on_failure(self.name, broken)
            self._drop()
            raise Refusal(self._unavailable.closed) from broken
        finally:
            self._changing = False
        self.stats.marked += 1
        self._end = offset + 1  # answers that know of the marker wait for its commit
        self._release()

    @property
    def uncommitted(self) -> int:
        """Answers and effects behind the high watermark."""
        return len(self._parked)

    @property
    def waiting(self) -> int:
        """Commands in queues, those that wait for the load included."""
        return len(self._early) + len(self._waiting)

    @property
    def timers(self) -> int:
        """Timers that are set."""
        return len(self._timers)

    # ---- decide, append, apply --------------------------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        again = self._decide(call)
        if again is not None:
            self._wait(call, again)
        self._release()

    def _decide(self, call: Call) -> Again | None:
        # The log may run callbacks while it appends; a command decided between append and apply would not see the
        # records that already precede its own.
        assert not self._changing, f"{self.name}: a command inside an append"
        now_ms = self._clock.wall_ms()
        try:
            decision = self.shard.decide(call.command, now_ms)
        except Refusal as refusal:
            self.stats.refused += 1
            self._park(call, refusal, None)
            return None
        except Exception as bug:  # noqa: BLE001  decide changed nothing, so the shard is intact: the one caller fails
            self._on_failure(self.name, bug)
            self._park(call, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR), None)
            return None
        if isinstance(decision, Again):
            return decision
        self.stats.decided += 1
        if decision.records or decision.soft:
            if not self._carry_out(call, decision, now_ms):
                return None
            if decision.records:
                self._written.extend(decision.keys)
        for timer in decision.timers:
            self._timers.set(timer)
        if isinstance(decision.reply, Again):
            self._parked.append(Parked(self._end, None, None, decision))
            return decision.reply
        self._park(call, decision.reply, decision)
        return None

    def _carry_out(self, call: Call, decision: "Decision[Any]", now_ms: int) -> bool:
        """Append the records, make the soft changes, apply the records. Return False if that failed; `call` is answered then."""
        records, end = decision.records, self._end
        self._changing = True
        try:
            if records:
                end = self._log.append(records, now_ms, call.guard, deferred=decision.deferred)
                self.stats.appended += 1
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
            self._timers.again(Timer(call.timer, command=call.command, delay_ms=TIMER_RETRY_MS))
            self._park(call, Refusal(self.shard.append_refusal(refusal.error)), None)
            return False
        except Exception as broken:  # noqa: BLE001  OSError, or a bug in apply or a soft change: log and memory are apart
            self._on_failure(self.name, broken)
            self._drop()
            call.answer(Refusal(self._unavailable.closed))
            return False
        finally:
            self._changing = False
        if self.state is not EngineState.ACTIVE:  # the log took the leadership from us inside the append
            call.answer(Refusal(self._unavailable.closed))
            return False
        self._end = end
        return True

    def _park(self, call: Call, reply: Any, decision: "Decision[Any] | None") -> None:
        self._parked.append(Parked(self._end, call, reply, decision))
        call.disarm()  # it may come out of a queue
        if self._end > self._log.high_watermark and call.future is not None:
            self._arm(call, call.deadline_s, self._commit_expired)

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
            return  # an effect has submitted a command: the loop below will come to it
        self._releasing = True
        try:
            while self.state is EngineState.ACTIVE:
                high_watermark = self._log.high_watermark
                if high_watermark > self._committed:
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
        if entry.call is not None:
            entry.call.answer(entry.reply)
        for effect in entry.effects:
            self._on_effect(effect)
        for key in entry.keys:
            self._wake(key)

    def _commit_expired(self, call: Call) -> None:
        self.stats.timed_out += 1
        call.answer(Refusal(self.shard.append_refusal(TIMED_OUT)))

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def _wait(self, call: Call, again: Again) -> None:
        assert self._loop is not None
        if not self._waiting.join(again.key, call, self._limits.waiting_max):
            call.answer(again.refusal)
            return
        self.stats.waited += 1
        until_s = min(call.deadline_s, self._loop.time() + call.wait_s_max)
        self._arm(call, until_s, lambda waiting: self._wait_expired(waiting, again))

    def _hold(self, call: Call) -> None:
        """It has come before the shard serves: most loads are over sooner than a client's back-off would be."""
        if len(self._early) >= self._limits.early_max:
            call.answer(Refusal(self._unavailable.loading))
            return
        self._early[call] = None
        loop = self._loop or get_running_loop()
        until_s = min(call.deadline_s, loop.time() + call.wait_s_max)
        call.handle = loop.call_at(until_s, self._hold_expired, call)

    def _hold_expired(self, call: Call) -> None:
        self._early.pop(call, None)
        call.answer(Refusal(self._unavailable.loading))

    def _wait_expired(self, call: Call, again: Again) -> None:
        # Told at once, not when committed: "somebody is at work on this id" is true of uncommitted work too.
        self._waiting.leave(again.key, call)
        self.stats.wait_expired += 1
        call.answer(again.refusal)

    def _wake(self, key: Hashable) -> None:
        self._waiting.wake(key, lambda call: self._decide(call) is not None)

    def _arm(self, call: Call, when_s: float, expired: Callable[[Call], None]) -> None:
        assert self._loop is not None
        call.disarm()
        call.handle = self._loop.call_at(when_s, expired, call)

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
