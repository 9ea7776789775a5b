"""Compare the visible rows of the output topic with the input. All functions are pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odradek.pipeline.eos.visibility import Row, Visibility

FINDINGS_SHOWN_MAX = 5
"""Maximum findings of each kind that are printed."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """Counts of a campaign.

    Attributes:
        expected: Rows of the input.
        visible: Rows of the output.
        batches: Batches with a visible row.
        lost: Rows of the input that are not visible.
        duplicated: Additional copies of visible rows.
        foreign: Visible rows that are not in the input, such as those of aborted transactions.
        split: Batches that were visible in part when they had to be whole.
        mixed: Batches with visible rows of several runs of the driver.
        undecided: Visible rows whose batch was not in the ledger.
        vanished: Rows that a sample read, and that are not visible at the end.
        findings: The first findings of each kind.
    """

    expected: int
    visible: int
    batches: int
    lost: int
    duplicated: int
    foreign: int
    split: int
    mixed: int
    undecided: int
    vanished: int
    findings: tuple[str, ...]

    @property
    def at_least_once(self) -> bool:
        """Return True if each row is visible, and no visible row is wrong or vanished."""
        return self.expected > 0 and not any((self.lost, self.foreign, self.vanished))

    @property
    def exactly_once(self) -> bool:
        """Return True if each row is visible once, and no batch was visible in part."""
        return self.at_least_once and not any((self.duplicated, self.split, self.mixed, self.undecided))


def judge(source: Iterable[bytes], rows: Sequence[Row], visibility: Visibility) -> Judgment:
    """Compare the input with the visible rows at the end, and with the samples.

    Args:
        source: Values of the input topic.
        rows: Visible rows of the output topic at the end.
        visibility: Samples of the campaign.
    """
    expected, seen = Counter(source), Counter(row.value for row in rows)
    lost, extra = expected - seen, seen - expected
    duplicated = {value: count for value, count in extra.items() if value in expected}
    foreign = {value: count for value, count in extra.items() if value not in expected}
    final = Counter(row.batch for row in rows)
    split = visibility.split(final)
    runs = {(row.batch, row.run) for row in rows}
    mixed = sorted(batch for batch, count in Counter(batch for batch, _ in runs).items() if count > 1)
    vanished = sorted(visibility.rows - set(rows))
    return Judgment(
        expected=expected.total(),
        visible=seen.total(),
        batches=len(final),
        lost=lost.total(),
        duplicated=sum(duplicated.values()),
        foreign=sum(foreign.values()),
        split=len(split),
        mixed=len(mixed),
        undecided=len(visibility.undecided),
        vanished=len(vanished),
        findings=(
            *_first("lost row", sorted(lost)),
            *_first("duplicated row", sorted(duplicated)),
            *_first("foreign row", sorted(foreign)),
            *_first("batch visible in part", split),
            *_first("batch with rows of several runs", mixed),
            *_first("row without a decision", visibility.undecided),
            *_first("row that vanished", vanished),
        ),
    )


def _first(kind: str, items: Iterable[object]) -> list[str]:
    return [f"{kind}: {item}" for item, _ in zip(items, range(FINDINGS_SHOWN_MAX), strict=False)]
