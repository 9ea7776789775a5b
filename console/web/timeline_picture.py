"""Picture of the transactions of one transactional id: one bar per transaction on a common time axis. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.console.model.transition_log import Run

WIDTH: Final = 1000.0
"""Width of the time axis in units of the picture."""
BLOCK_WIDTH_MIN: Final = 3.0
"""Minimum width of a block, so that a short transaction is visible."""
ROW_HEIGHT: Final = 18
SINGLE_STEPS: Final = ("initialized", "removed")


@dataclass(frozen=True, slots=True)
class Block:
    """A phase of a transaction. `kind` is a class of the style sheet."""

    x: float
    width: float
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """The blocks of one transaction, and its outcome."""

    y: int
    outcome: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """Rows with the times of both ends of the axis, in ms since 1970. `rows` has the newest transaction first."""

    begin_ms: int
    end_ms: int
    height: int
    rows: tuple[Row, ...]


def picture_of(runs: Sequence[Run], now_ms: int) -> Picture | None:
    """Return the picture of transactions, newest first, or None if there is none."""
    shown = [run for run in runs if run.outcome not in SINGLE_STEPS]
    if not shown:
        return None
    begin = min(run.begin_ms for run in shown)
    end = max(now_ms if run.end_ms is None else run.end_ms for run in shown)
    end = max(end, begin + 1)

    def block(start_ms: int, stop_ms: int, kind: str, label: str) -> Block:
        x = (start_ms - begin) / (end - begin) * WIDTH
        width = max(BLOCK_WIDTH_MIN, (stop_ms - start_ms) / (end - begin) * WIDTH)
        return Block(round(min(x, WIDTH - width), 2), round(width, 2), kind, label)

    rows = []
    for number, run in enumerate(shown):
        stop = now_ms if run.end_ms is None else run.end_ms
        decided = stop if run.ongoing_ms is None else run.begin_ms + run.ongoing_ms
        blocks = [block(run.begin_ms, max(decided, run.begin_ms), "ongoing", f"ongoing {decided - run.begin_ms} ms")]
        if run.ongoing_ms is not None:
            blocks.append(
                block(decided, max(stop, decided), run.outcome, f"{run.outcome}, markers {stop - decided} ms")
            )
        rows.append(Row(number * ROW_HEIGHT, run.outcome, tuple(blocks)))
    return Picture(begin, end, len(rows) * ROW_HEIGHT, tuple(rows))
