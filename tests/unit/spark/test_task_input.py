"""Input of tasks that end early. Spark writes the input of a Python worker and reads its output in one thread.

1. The worker writes its output, and exits before it has received its input.
2. The thread of Spark writes more input. The connection is reset, so that the thread does not read the output.
3. The task fails, and its report with the reason is lost.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from odradek.client import ProducerIdentity
from odradek.spark import task_writes, tasks
from odradek.spark.options import sink_options
from odradek.spark.records import SinkRow
from odradek.spark.task_writes import write_own
from odradek.spark.tasks import Assignment, assign, write
from tests.support.sink_rig import arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

BATCHES = 5
NO_BROKER = sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "sink": "s", "topic": "t"})
IDENTITY = ProducerIdentity("spark.s", 1, 0)


class Input:
    """Arrow batches with rows for a partition that does not exist."""

    def __init__(self) -> None:
        self.read = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for _ in range(BATCHES):
            self.read += 1
            yield arrow([SinkRow("t", 9, None, b"x", None, None)])


@pytest.fixture
def given() -> Input:
    return Input()


def as_attempt(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    context = SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: number)
    for module in (tasks, task_writes):
        monkeypatch.setattr(module, "current_task", lambda: context)


def notes(batches: Iterator[pa.RecordBatch]) -> str:
    return "".join(note for batch in batches for note in batch.column("note").to_pylist() if note)


def test_task_with_an_invalid_row_reads_all_its_input(given: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    as_attempt(monkeypatch, 0)
    assert "topic t has no partition 9" in notes(assign(given.batches(), Assignment(NO_BROKER, {"t": 2})))
    assert given.read == BATCHES


@pytest.mark.parametrize(("number", "reason"), [(0, "127.0.0.1:1"), (1, "its attempt 1 did not write")])
def test_task_that_cannot_write_reads_all_its_input(
    number: int, reason: str, given: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_attempt(monkeypatch, number)
    assert reason in notes(write(given.batches(), NO_BROKER, IDENTITY))
    assert given.read == BATCHES


@pytest.mark.parametrize(
    ("number", "tasks_max", "reason"), [(0, 1, "127.0.0.1:1"), (0, 0, "task"), (1, 1, "attempt 1")]
)
def test_task_of_mode_2pc_that_cannot_write_reads_all_its_input(
    number: int, tasks_max: int, reason: str, given: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_attempt(monkeypatch, number)
    identities = dict.fromkeys(range(tasks_max), IDENTITY)
    assert reason in notes(write_own(given.batches(), NO_BROKER, identities, {"t": 2}))
    assert given.read == BATCHES
