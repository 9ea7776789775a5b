"""Three bugs of group coordinators, each by replacing one function (see `planted`)."""

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.coordinator.group.core import GroupShard
from odradek.runtime.engine import Engine

LATE_SECONDS = 0.4


def drop_pending(original: Callable[..., Any]) -> Callable[..., Any]:
    """A coordinator that takes over forgets the offsets of transactions that are open."""

    def on_loaded(state: Any, now_ms: int) -> Any:
        for producer_id in list(state.offsets.pending):
            state.offsets.complete(producer_id, commit=False)
        return original(state, now_ms)

    return on_loaded


def accept_fenced_member(original: Callable[..., Any]) -> Callable[..., Any]:
    """TxnOffsetCommit is not asked for member and generation, as before KIP-447."""

    def check_offset_commit(self: Any, *arguments: Any, in_transaction: bool, **others: Any) -> None:
        if not in_transaction:
            original(self, *arguments, in_transaction=in_transaction, **others)

    return check_offset_commit


def materialise_late(original: Callable[..., Any]) -> Callable[..., Any]:
    """KAFKA-5600: a marker is answered when it is written, and the offsets follow."""

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
