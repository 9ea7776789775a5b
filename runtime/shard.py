"""The contract between a replicated core and the engine that runs it.

A core is a pure state machine over one log partition:

    decide(command, now_ms) -> Decision     reads the state, never changes it; raises Refusal
    apply(offset, record, leader_epoch)     changes hard state (what the log says), with apply_marker; never refuses,
                                            never reads a clock
    Decision.soft                           changes of soft state (what is lost with the leadership)

The engine appends the records of a decision as one atomic batch, makes its soft changes on the state that `decide` saw, and
applies the records, all at once: the next command sees both. An exception out of `decide` changes nothing. A log that refuses the
records changes nothing either, unless the decision says that its soft changes survive that. They are *pending* until the high watermark has passed them; the core is told by `on_committed` how far that is and
derives "pending" from offsets, never from a flag. Start, restart and fail-over are `apply` over the log.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from odradek.protocol.errors import ErrorCode, Refusal

C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

SoftChange: TypeAlias = Callable[[], object]
"""Changes soft state as a decision says. It must not raise."""
Effect: TypeAlias = Any
"""Something for the driver to do: any frozen dataclass. Idempotent, and issued again by `on_loaded` from state alone."""


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """One record of the shard's log. `value` None is a tombstone.

    Records of a transaction (offsets committed within one) carry its producer; all others have -1. `memo` never reaches
    the log: it hands to `apply`, on the broker that decided, what the format of the record cannot hold. A replayed
    record has none, so nothing that must survive may stand in it alone.
    """

    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    producer_epoch: int = -1
    memo: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction in this log (a control record)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Timer:
    """`command` comes back at `deadline_ms` (wall clock, for what is persisted) or after `delay_ms` (monotonic, for
    everything else: a clock set back must not silence a sweep). With neither, the timer of `key` is cancelled. One timer
    a key: a new one replaces it.
    """

    key: Hashable
    deadline_ms: int | None = None
    command: Any = None
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Not yet: decide the command again when something with `key` is written or committed; `refusal` when that takes too
    long.
    """

    key: Hashable
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Decision(Generic[R_co]):
    """What one command leads to.

    `reply` is the answer, or the refusal to raise, once everything it was decided on is committed; so are `effects`.
    A reply of `Again` means: these records first, and then the same command once more when its key is committed.
    `records` go to the log as one atomic batch. `keys` are the waiting keys whose commands are looked at again when the
    batch is in the log, and again when it is committed. `deferred`: nobody waits for the records, which may be replicated
    together with what is appended next. `soft` changes are made once the records are in the log, before
    they are applied; if the log refuses the records they are not made, unless `soft_survives`.
    """

    reply: "R_co | Refusal | Again"
    records: tuple[ShardRecord, ...] = ()
    effects: tuple[Effect, ...] = ()
    timers: tuple[Timer, ...] = ()
    keys: tuple[Hashable, ...] = ()
    deferred: bool = False
    soft: tuple[SoftChange, ...] = ()
    soft_survives: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a freshly loaded core asks for. Effects wait for the commit of everything that was found in the log."""

    timers: tuple[Timer, ...] = ()
    effects: tuple[Effect, ...] = ()


class Shard(Protocol[C_contra, R_co]):
    def decide(self, command: C_contra, now_ms: int) -> "Decision[R_co] | Again":
        """Decide `command` on the state, without changing it. Raise Refusal."""

    def apply(self, offset: int, record: ShardRecord, leader_epoch: int) -> None:
        """Take one record of the log into the state."""

    def apply_marker(self, offset: int, marker: Marker, leader_epoch: int) -> None:
        """Take one end-of-transaction marker into the state."""

    def on_committed(self, high_watermark: int) -> None:
        """Every record below `high_watermark` is committed."""

    def on_loaded(self, leader_epoch: int, now_ms: int) -> Loaded:
        """The log has been replayed and this broker leads it in `leader_epoch`."""

    def append_refusal(self, error: ErrorCode) -> ErrorCode:
        """What a client is told when the log refuses a batch, or has not committed it in time (REQUEST_TIMED_OUT)."""


class EngineState(Enum):
    NEW = "new"
    LOADING = "loading"
    CATCHING_UP = "catching up"
    """The log has been read to its end, not all of which is known to be committed yet."""
    ACTIVE = "active"
    CLOSED = "closed"

    @property
    def is_before_active(self) -> bool:
        return self in _BEFORE_ACTIVE


_BEFORE_ACTIVE = (EngineState.NEW, EngineState.LOADING, EngineState.CATCHING_UP)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The two answers of a shard that cannot decide: while it loads, and when it is not led here."""

    loading: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    closed: ErrorCode = ErrorCode.NOT_COORDINATOR


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of one engine.

    `wait_ms_max`: how long a command may wait in its key's queue, or for the shard to be loaded. `waiting_max`: commands
    waiting in one queue. `early_max`: commands waiting for the load. `uncommitted_max`: answers and effects parked behind
    the high watermark, before commands are refused.
    """

    wait_ms_max: int = 1_000
    waiting_max: int = 64
    early_max: int = 10_000
    uncommitted_max: int = 100_000


EffectHandler: TypeAlias = Callable[[Effect], None]
FailureHandler: TypeAlias = Callable[[str, BaseException], None]
"""Told of an exception that is a bug or a broken disk, with the name of the shard. Simulation fails the run."""
