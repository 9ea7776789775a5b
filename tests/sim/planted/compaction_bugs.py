"""Five bugs of compaction. Each replaces one function (see `planted`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from odradek.storage.disk.port import Disk
from odradek.storage.files import names


def remove_newest(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compaction removes the newest record of a key."""

    def needed(self: Any, header: Any, record: Any, digest: bytes, horizon: int | None) -> Any:
        offset = header.base_offset + record.offset_delta
        return offset != self.offsets.get(digest) and original(self, header, record, digest, horizon)

    return needed


def compact_unstable(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compaction removes records above the last stable offset, and removes others in favor of them."""

    def cleanable(log: Any, now_ms: int) -> Any:
        plan = original(log, now_ms)
        bound = log.segments.active.base_offset
        dirty = sum(segment.size for segment in log.segments if plan.first_dirty <= segment.base_offset < bound)
        return replace(plan, bound=max(bound, plan.first_dirty), dirty_bytes=dirty)

    return cleanable


def forget_last_batches(_original: Callable[..., Any]) -> Callable[..., Any]:
    """Compaction removes the last batch of a producer, although the broker checks the next sequence against it."""

    def is_last_of_producer(_self: Any, _header: Any) -> bool:
        return False

    return is_last_of_producer


def remove_marker_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compaction removes the marker of a transaction whose records stay."""

    def on_control_batch(self: Any, batch: Any, kind: Any) -> bool:
        original(self, batch, kind)
        return True

    return on_control_batch


def drop_swaps(_original: Callable[..., Any]) -> Callable[..., Any]:
    """Start-up removes `.swap` files, although the segments that they replace may be gone."""

    def finish_swaps(disk: Disk, directory: str) -> None:
        for name in disk.list(directory):
            if name.endswith(names.SWAP_SUFFIX):
                disk.remove(f"{directory}/{name}")

    return finish_swaps
