"""The contract between a replicated core and the engine that runs it.

A core is a pure state machine over one log partition. It has three operations:

- `decide(command, now_ms)` returns a Decision or raises Refusal. It reads the state and never changes it.
- `apply(offset, record, leader_epoch)` and `apply_marker` change hard state, which follows from the log. They never
  refuse, and never read a clock.
- The functions in `Decision.soft` change soft state, which is lost when the broker is no longer leader.

The engine appends the records of a decision as one atomic batch, makes its soft changes on the state that `decide` has
read, and applies the records, all in one step. The next command sees both. An exception from `decide` changes nothing.
If the log refuses the records, nothing changes either, except for soft changes that survive it (`soft_survives`).

Records are *pending* until the high watermark has passed them. The core receives the high watermark by `on_committed`,
and derives "pending" from offsets, never from a flag. Start, restart and fail-over are `apply` over the log.
"""

from collections.abc import Callable, Hashable
from dataclasses import field
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal

C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

SoftChange: TypeAlias = Callable[[], object]
"""Function that changes soft state. It must not raise."""
Effect: TypeAlias = Any
"""Action for the driver, as a frozen dataclass.

It is idempotent: `on_loaded` issues it again, derived from the state.
"""


@frozen_dataclass(frozen=True, slots=True)
class ShardRecord:
    """Record of the log of a shard. A `value` of None is a tombstone.

    Records of a transaction, which commit offsets, have its producer id and epoch; all others have -1. `memo` is not
    written to the log. It passes data that the record format cannot hold from `decide` to `apply`. A replayed record
    has no memo, so data that must survive a fail-over may not be in it alone.
    """

    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    producer_epoch: int = -1
    memo: Any = field(default=None, compare=False, repr=False)


@frozen_dataclass(frozen=True, slots=True)
class Marker:
    """Transaction marker in the log of a shard: the control record that ends a transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


@frozen_dataclass(frozen=True, slots=True)
class Timer:
    """Request to submit `command` at `deadline_ms` or after `delay_ms`. It replaces the timer with the same key.

    `deadline_ms` is wall-clock time, for persisted deadlines. `delay_ms` is monotonic time, for all others: a wall
    clock that is set back must not delay them. Without both, the timer of `key` is cancelled.
    """

    key: Hashable
    deadline_ms: int | None = None
    command: Any = None
    delay_ms: int | None = None


class ExpiryCommand:
    """Base of commands that delete state by its age. The engine decides them at `Clock.expiry_ms`, not at wall time."""

    __slots__ = ()


@frozen_dataclass(frozen=True, slots=True)
class RetryAfter:
    """Result of `decide`: the command waits for `key`, and then the engine retries it.

    The engine decides it again when a record with this key is appended or committed. If that takes too long, the engine
    refuses the command with `refusal`.
    """

    key: Hashable
    refusal: Refusal


@frozen_dataclass(frozen=True, slots=True)
class Decision(Generic[R_co]):
    """Result of `decide`: the reply and the changes of one command.

    - `reply` is given, and `effects` are issued, when all records that the decision depends on are committed. A reply
      of `RetryAfter` means: write these records first, then decide the same command again when its key is committed.
    - `records` are appended as one atomic batch.
    - `timers` are set or cancelled.
    - `keys`: the commands that wait for these keys are decided again when the batch is appended, and when it is
      committed.
    - `deferred`: no request waits for the records. They may be replicated together with the next append.
    - `soft` changes are made after the append and before the records are applied. If the log refuses the records, they
      are made only with `soft_survives`.
    """

    reply: "R_co | Refusal | RetryAfter"
    records: tuple[ShardRecord, ...] = ()
    effects: tuple[Effect, ...] = ()
    timers: tuple[Timer, ...] = ()
    keys: tuple[Hashable, ...] = ()
    deferred: bool = False
    soft: tuple[SoftChange, ...] = ()
    soft_survives: bool = False


@frozen_dataclass(frozen=True, slots=True)
class Loaded:
    """Timers and effects of a core after it was loaded. Effects wait until all loaded records are committed."""

    timers: tuple[Timer, ...] = ()
    effects: tuple[Effect, ...] = ()


class Shard(Protocol[C_contra, R_co]):
    """Core of a replicated shard. See the docstring of the module for its contract."""

    def decide(self, command: C_contra, now_ms: int) -> "Decision[R_co] | RetryAfter":
        """Decide `command` on the state, without changing it. Raise Refusal if it is refused."""

    def apply(self, offset: int, record: ShardRecord, leader_epoch: int) -> None:
        """Apply one record of the log to the state."""

    def apply_marker(self, offset: int, marker: Marker, leader_epoch: int) -> None:
        """Apply one transaction marker of the log to the state."""

    def on_committed(self, high_watermark: int) -> None:
        """Note that all records below `high_watermark` are committed."""

    def on_loaded(self, leader_epoch: int, now_ms: int) -> Loaded:
        """Note that the log was replayed and this broker is its leader in `leader_epoch`."""

    def append_refusal(self, error: ErrorCode) -> ErrorCode:
        """Return the error for the client if the log refuses a batch with `error`.

        REQUEST_TIMED_OUT means that the batch was not committed in time.
        """


class EngineState(Enum):
    """State of an engine."""

    NEW = "new"
    LOADING = "loading"
    CATCHING_UP = "catching up"
    """The log was read to its end. The high watermark has not reached that end yet."""
    ACTIVE = "active"
    CLOSED = "closed"

    @property
    def is_before_active(self) -> bool:
        """True if the shard is not loaded yet."""
        return self in _BEFORE_ACTIVE


_BEFORE_ACTIVE = (EngineState.NEW, EngineState.LOADING, EngineState.CATCHING_UP)


@frozen_dataclass(frozen=True, slots=True)
class LoadReport:
    """Line for the log of the broker about the records of a load. `severe`: an id is not served because of them."""

    event: str
    reason: str
    severe: bool = True


@frozen_dataclass(frozen=True, slots=True)
class Unavailable:
    """Errors of a shard that cannot decide: while it is loading, and when this broker is not its leader."""

    loading: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    closed: ErrorCode = ErrorCode.NOT_COORDINATOR


@frozen_dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of one engine. Beyond them, commands are refused."""

    wait_ms_max: int = 1_000
    """Maximum time in ms that a command waits in the queue of a key, or for the load of the shard."""
    waiting_max: int = 64
    """Maximum commands that wait for one key."""
    load_waiting_max: int = 10_000
    """Maximum commands that wait for the load."""
    uncommitted_max: int = 100_000
    """Maximum replies and effects that wait for the high watermark."""


EffectHandler: TypeAlias = Callable[[Effect], None]
FailureHandler: TypeAlias = Callable[[str, BaseException], None]
"""Callback with the name of the shard and an exception: a bug, or a failed disk operation. Simulation fails the run."""
