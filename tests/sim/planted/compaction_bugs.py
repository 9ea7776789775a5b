"""Four bugs of compaction, each by replacing one function (see `planted`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from odradek.storage.disk.port import Disk
from odradek.storage.files import names


def take_the_newest(original: Callable[..., Any]) -> Callable[..., Any]:
    """A record gives way to itself."""

    def needed(self: Any, header: Any, record: Any, horizon: int | None) -> Any:
        offset = header.base_offset + record.offset_delta
        return offset != self.offsets.get(record.key) and original(self, header, record, horizon)

    return needed


def past_the_stable_offset(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is not stable gives way, and is given way to."""

    def cleanable(log: Any, now_ms: int) -> Any:
        plan = original(log, now_ms)
        bound = log.segments.active.base_offset
        dirty = sum(each.size for each in log.segments if plan.first_dirty <= each.base_offset < bound)
        return replace(plan, bound=max(bound, plan.first_dirty), dirty_bytes=dirty)

    return cleanable


def forget_last_batches(_original: Callable[..., Any]) -> Callable[..., Any]:
    """A batch of which no record is left goes, although its producer's next one will be judged by it."""

    def is_last_of_producer(_self: Any, _header: Any) -> bool:
        return False

    return is_last_of_producer


def drop_swaps(_original: Callable[..., Any]) -> Callable[..., Any]:
    """A start removes what was about to be swapped in, although what it replaces may be gone."""

    def finish_swaps(disk: Disk, directory: str) -> None:
        for name in disk.list(directory):
            if name.endswith(names.SWAP_SUFFIX):
                disk.remove(f"{directory}/{name}")

    return finish_swaps
