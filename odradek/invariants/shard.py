"""Invariants of the shard engine: load, order of records and replies, commit, timers."""

from __future__ import annotations

from typing import Final

from odradek.invariants.invariant import Cost, Invariant

ENGINE_LOADED_ONCE: Final = Invariant(
    "engine-loaded-once",
    "Engine",
    "An engine is loaded once.",
    "Kafka's CoordinatorRuntime (CoordinatorState.LOADING)",
)
ENGINE_NOT_REENTERED: Final = Invariant(
    "engine-not-reentered",
    "Engine",
    "No command is decided and no marker is appended between an append of records and the end of their application.",
    "Kafka's CoordinatorRuntime (context lock)",
)
ENGINE_APPEND_ORDER: Final = Invariant(
    "engine-append-order",
    "Engine",
    "Records and markers are applied in the order of their offsets: an append begins at or above the end of the"
    " previous one.",
    "Kafka's CoordinatorRuntime (SnapshottableCoordinator.updateLastWrittenOffset)",
)
ENGINE_COMMITTED: Final = Invariant(
    "engine-committed",
    "Engine",
    "The committed offset is at most the log end offset.",
    "Kafka's CoordinatorRuntime (SnapshottableCoordinator.updateLastCommittedOffset)",
    Cost.EXPENSIVE,
)
ENGINE_REPLY_COMMITTED: Final = Invariant(
    "engine-reply-committed",
    "Engine",
    "A reply or effect leaves the engine only after the high watermark has passed the log end at its decision.",
    "Kafka's CoordinatorRuntime (deferred events)",
    Cost.EXPENSIVE,
)
TIMER_ENTRIES: Final = Invariant(
    "timer-entries",
    "TimerQueue",
    "After the due timers have fired, each timer that is set has exactly one valid entry in the two queues.",
    "Kafka's CoordinatorTimer",
    Cost.EXPENSIVE,
)
