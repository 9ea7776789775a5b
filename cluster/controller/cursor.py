"""Position of a pass over all partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.frozen import frozen_dataclass

if TYPE_CHECKING:
    from uuid import UUID


@frozen_dataclass(frozen=True, slots=True)
class Cursor:
    """The next partition of a pass: number `partition` in topic number `topic` of `topics`."""

    topics: tuple[UUID, ...]
    topic: int = 0
    partition: int = 0
