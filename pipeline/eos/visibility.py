"""Samples of a reader: the ledger, and the visible rows of each batch. All code is pure.

A sample has four steps, in this order:

1. The reader reads the ledger: its last batch is N.
2. The reader describes the transaction of the sink, and in mode 2pc also those of all tasks.
3. The reader reads all visible records of the output topic (read_committed).
4. If a record of a batch above N was read, the reader reads the ledger again with `require_stable`.

Markers arrive partition by partition, so each partition shows a batch at another time. Two rules hold in spite of it:

- **Whole.** The ledger shows N only after the decision to commit. If the transaction is in no state Prepare in step 2,
  then all markers of batch N and of earlier batches were written before. Step 3 thus reads all their rows.
- **Decided.** A visible row implies that its batch was decided. Step 4 waits for pending offsets. Its ledger thus has
  each batch of which step 3 read a row.

In mode 2pc the ledger entry is the decision, and the transactions of the tasks end after it. Batch N may be visible in
part. All EndTxn requests of earlier batches had a response before the decision on batch N, so their transactions were
at least in state PrepareCommit. There the rule *whole* is for the batches before N.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_BATCH: Final = -1
"""Last batch of an empty ledger."""
UNJUDGED_MAX: Final = 1
"""Maximum visible batches of a campaign that the rule *whole* does not judge: the last one in mode 2pc."""


class Row(NamedTuple):
    """A visible record of the output topic: its value, its place, and the batch and run of its headers."""

    partition: int
    offset: int
    value: bytes
    batch: int
    run: int


@dataclass(slots=True)
class Visibility:
    """Record of all samples.

    Attributes:
        two_phase: The sink writes with two-phase commit.
        rows: All rows that samples read.
        samples: Number of samples.
        whole: Rows of a batch in the first sample in which the batch had to be whole.
        newest: For each sample, the last batch of the ledger and the number of its visible rows.
        undecided: Findings of the rule *decided*.
    """

    two_phase: bool = False
    rows: set[Row] = field(default_factory=set)
    samples: int = 0
    whole: dict[int, int] = field(default_factory=dict)
    newest: list[tuple[int, int]] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    _counts: Counter[int] = field(default_factory=Counter)
    _judged: int = NO_BATCH
    _highest: int = NO_BATCH

    def read(self, rows: Iterable[Row]) -> int:
        """Add the rows of step 3. Return the highest batch of the rows that were read since the last sample.

        The result includes the rows of samples that failed after step 3.
        """
        added = set(rows) - self.rows
        self.rows |= added
        self._counts.update(row.batch for row in added)
        self._highest = max([self._highest, *(row.batch for row in added)])
        return self._highest

    def sampled(self, before: int, after: int, *, complete: bool) -> None:
        """Add a sample.

        Args:
            before: Last batch of the ledger in step 1.
            after: Last batch of the ledger in step 4, or `before` without that step.
            complete: No transaction was in a state Prepare in step 2.
        """
        self.samples += 1
        highest, self._highest = self._highest, NO_BATCH
        if highest > after:
            self.undecided.append(f"a row of batch {highest} is visible, and the ledger ends with batch {after}")
        if before != NO_BATCH:
            self.newest.append((before, self._counts[before]))
        last = before - 1 if self.two_phase else before
        if complete:
            for batch in range(self._judged + 1, last + 1):
                self.whole[batch] = self._counts[batch]
            self._judged = max(self._judged, last)

    @property
    def unjudged(self) -> int:
        """Number of visible batches that the rule *whole* has not judged."""
        return len(self._counts.keys() - self.whole.keys())

    def split(self, final: Mapping[int, int]) -> list[int]:
        """Return the batches that a sample showed in part when they had to be whole. `final` has the rows of each."""
        return [batch for batch, count in sorted(self.whole.items()) if count != final.get(batch, 0)]

    def windows(self, final: Mapping[int, int]) -> int:
        """Return the number of samples that showed the last batch of the ledger in part, which is allowed."""
        return sum(count != final.get(batch, 0) for batch, count in self.newest)
