"""Reports of tasks that write in transactions of their own, and the decision whether these may be committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.spark.outcome import differences
from odradek.spark.records import CHECKSUM_MODULUS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from odradek.client import PreparedTransaction, TopicPartition
    from odradek.spark.outcome import Failure, Kept, WrittenPartition


@dataclass(slots=True)
class TaskReports:
    """Reports of all tasks of a batch in mode 2pc. A task is known by its partition id.

    Attributes:
        tasks: The task of each report.
        written: Partitions that each task wrote. A task without rows is left out.
        failures: Failures of tasks.
    """

    tasks: list[int] = field(default_factory=list)
    written: dict[int, list[WrittenPartition]] = field(default_factory=dict)
    failures: list[tuple[Failure, str]] = field(default_factory=list)

    @property
    def needed(self) -> int:
        """Number of transactional ids of tasks that the batch needs."""
        return max(self.tasks, default=-1) + 1

    @property
    def rows(self) -> int:
        """Rows of the batch that were written."""
        return sum(each.rows for written in self.written.values() for each in written)

    @property
    def checksum(self) -> int:
        """Checksum of the rows that were written."""
        return sum(each.checksum for written in self.written.values() for each in written) % CHECKSUM_MODULUS


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """Open transaction of a task, after the fence that ended its writes.

    Attributes:
        prepared: Producer id and epoch of the transaction.
        partitions: Partitions of the transaction.
        kept: State of the transaction at the leader of each partition, if the leader has one.
    """

    prepared: PreparedTransaction
    partitions: Collection[TopicPartition]
    kept: Mapping[TopicPartition, Kept]


def task_differences(
    reports: TaskReports, given: Mapping[int, PreparedTransaction], found: Mapping[int, TaskTransaction]
) -> list[str]:
    """Return the reasons why a batch must not be committed. The list is empty if each row was written once.

    Args:
        reports: Reports of the tasks.
        given: Producer id and epoch that the driver gave to each task.
        found: Open transactions of the tasks.
    """
    problems = []
    if sorted(reports.tasks) != list(range(reports.needed)):
        problems.append(f"the reports are those of the tasks {sorted(reports.tasks)}")
    silent = sorted(found.keys() - reports.written.keys())
    problems += [f"task {task} reported no row, and its transaction is open" for task in silent]
    for task, written in sorted(reports.written.items()):
        transaction = found.get(task)
        if transaction is None or transaction.prepared != given.get(task):
            actual = None if transaction is None else transaction.prepared
            problems.append(f"task {task} wrote in the transaction {given.get(task)}, and {actual} is open")
            continue
        different = differences(written, transaction.partitions, transaction.kept)
        problems += [f"task {task}: {problem}" for problem in different]
    return problems
