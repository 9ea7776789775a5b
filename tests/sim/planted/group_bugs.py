"""Three bugs of group coordinators. Each replaces one function (see `planted`)."""

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.coordinator.group.core import GroupShard
from odradek.runtime.engine import Engine

LATE_SECONDS = 0.4


def drop_pending(original: Callable[..., Any]) -> Callable[..., Any]:
    """A new group coordinator drops the pending offsets of open transactions."""

    def on_loaded(state: Any, now_ms: int) -> Any:
        for producer_id in list(state.offsets.pending):
            state.offsets.complete(producer_id, commit=False)
        return original(state, now_ms)

    return on_loaded


def accept_fenced_member(original: Callable[..., Any]) -> Callable[..., Any]:
    """TxnOffsetCommit does not check member and generation, as before KIP-447."""

    def check_offset_commit(self: Any, *arguments: Any, in_transaction: bool, **others: Any) -> None:
        if not in_transaction:
            original(self, *arguments, in_transaction=in_transaction, **others)

    return check_offset_commit


def apply_offsets_late(original: Callable[..., Any]) -> Callable[..., Any]:
    """A marker is acknowledged when it is written, and its offsets take effect later (KAFKA-5600)."""

    def mark(self: Engine[Any, Any], marker: Any, write: Callable[[], int]) -> None:
        shard: Any = self.shard
        if not isinstance(shard, GroupShard):
            original(self, marker, write)
            return
        apply_marker = shard.apply_marker

        def later(*arguments: Any) -> None:
            asyncio.get_running_loop().call_later(LATE_SECONDS, apply_marker, *arguments)

        shard.__dict__["apply_marker"] = later
        try:
            original(self, marker, write)
        finally:
            del shard.__dict__["apply_marker"]

    return mark
