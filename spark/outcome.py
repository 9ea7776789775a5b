"""Reports of the tasks of a batch, and the decision whether the batch may be committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from odradek.client import ClientError, Fenced, InvalidArgument, NotFound, TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.spark.records import CHECKSUM_MODULUS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SEQUENCES = 2**31
"""Number of sequence numbers. The number after the last one is 0."""
NO_SEQUENCE = -1


class Failure(Enum):
    """Kind of a failure that a task reports."""

    INVALID = "the input is invalid, and a repetition fails, too"
    FENCED = "a newer producer has the transactional id"
    DOUBTFUL = "the records may have been written or not"


INVALID_CODES = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Error codes of a produce or metadata request that a repetition cannot change."""


def failure_of(error: ClientError | ValueError) -> Failure:
    """Return the kind of a failure of the client, or of a row that is invalid."""
    if isinstance(error, Fenced):
        return Failure.FENCED
    if (
        not isinstance(error, ClientError)
        or isinstance(error, NotFound | InvalidArgument)
        or error.code in INVALID_CODES
    ):
        return Failure.INVALID
    return Failure.DOUBTFUL


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """Records that one task wrote to one target partition."""

    target: TopicPartition
    rows: int
    first_offset: int
    last_offset: int
    checksum: int


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """Rows that one task before the shuffle read."""

    source: int
    rows: int
    checksum: int


@dataclass(slots=True)
class Outcome:
    """Reports of all tasks of a batch."""

    written: list[WrittenPartition] = field(default_factory=list)
    read: list[ReadPartition] = field(default_factory=list)
    failures: list[tuple[Failure, str]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of the batch that were written."""
        return sum(each.rows for each in self.written)

    @property
    def checksum(self) -> int:
        """Checksum of the rows that were written."""
        return sum(each.checksum for each in self.written) % CHECKSUM_MODULUS


@dataclass(frozen=True, slots=True)
class Kept:
    """State of a transaction at the leader of a partition: its first offset, and its last sequence number."""

    first_offset: int | None
    last_sequence: int


NOTHING_KEPT = Kept(None, NO_SEQUENCE)


def inconsistencies(
    outcome: Outcome, added: Collection[TopicPartition], kept: Mapping[TopicPartition, Kept]
) -> list[str]:
    """Return the reasons why a batch must not be committed. The list is empty if each row was written once.

    Args:
        outcome: Reports of the tasks.
        added: Partitions of the open transaction, without that of the ledger.
        kept: State of the producer id and epoch at the leader of each target partition, if the leader has one.
    """
    found = []
    targets = [each.target for each in outcome.written]
    found += [f"several tasks wrote {target}" for target in sorted(set(targets)) if targets.count(target) > 1]
    sources = [each.source for each in outcome.read]
    found += [f"input partition {each} was read twice" for each in sorted(set(sources)) if sources.count(each) > 1]
    read = sum(each.rows for each in outcome.read), sum(each.checksum for each in outcome.read) % CHECKSUM_MODULUS
    if read != (outcome.rows, outcome.checksum):
        found.append(f"rows and checksum read {read} differ from those written {(outcome.rows, outcome.checksum)}")
    return found + differences(outcome.written, added, kept)


def differences(
    written: Collection[WrittenPartition], added: Collection[TopicPartition], kept: Mapping[TopicPartition, Kept]
) -> list[str]:
    """Return the differences between the reports on a transaction and its state in the cluster.

    Args:
        written: Reports on the partitions of the transaction.
        added: Partitions of the transaction, without that of the ledger.
        kept: State of the producer id and epoch at the leader of each partition, if the leader has one.
    """
    unknown = sorted(set(added) - {each.target for each in written})
    found = [f"an unknown task attempt added {target} to the transaction" for target in unknown]
    for each in written:
        state = kept.get(each.target, NOTHING_KEPT)
        if state.last_sequence != (each.rows - 1) % SEQUENCES:
            found.append(f"{each.target} has last sequence {state.last_sequence} after {each.rows} records")
        if state.first_offset != each.first_offset:
            found.append(
                f"the transaction begins at offset {state.first_offset} in {each.target}, "
                f"and its first reported record has offset {each.first_offset}"
            )
    return found
