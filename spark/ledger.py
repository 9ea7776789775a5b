"""The ledger of a sink: the last written batch, as a committed offset with metadata."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odradek.client import CommittedOffset, PreparedTransaction
from odradek.spark.errors import CheckpointMismatch, SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

TASKS_MAX: Final = 256
"""Maximum tasks of a batch in mode 2pc.

The metadata of a committed offset has at most 4,096 characters (offset.metadata.max.bytes). A decided transaction takes
11 bytes, which are 15 characters.
"""
NO_BATCH: Final = -1
"""Batch id of an entry that was written before the first batch, and that has only the number of tasks."""
_DECIDED: Final = struct.Struct(">Bqh")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The last written batch of a sink.

    Attributes:
        batch_id: Id of the batch, which a repetition of the batch has, too.
        query_id: Id of the streaming query, which is stored in its checkpoint. None outside of streaming queries.
        run_id: Id of the run of the query that wrote the batch.
        rows: Rows of the batch.
        checksum: Sum of the checksums of the rows.
        tasks: Number of transactional ids of tasks that may have a transaction. 0 if mode 2pc was not used.
        decision: Transactions of tasks that belong to the batch, by task. They must be committed, and all others of
            tasks must be aborted.
    """

    batch_id: int
    query_id: str | None
    run_id: str
    rows: int
    checksum: int
    tasks: int = 0
    decision: Mapping[int, PreparedTransaction] = field(default_factory=dict)


def encoded(entry: LedgerEntry) -> CommittedOffset:
    """Return the committed offset of an entry: batch id + 1, and the other fields as JSON."""
    fields: dict[str, Any] = asdict(entry)
    del fields["batch_id"], fields["decision"]
    if not entry.tasks:
        del fields["tasks"]
    if entry.decision:
        packed = (_DECIDED.pack(task, each.producer_id, each.producer_epoch) for task, each in entry.decision.items())
        fields["decision"] = base64.b64encode(b"".join(packed)).decode()
    return CommittedOffset(entry.batch_id + 1, json.dumps(fields, separators=(",", ":")))


def decoded(committed: CommittedOffset) -> LedgerEntry:
    """Return the entry of a committed offset. Raise SinkError if it was not written by a sink."""
    try:
        fields = json.loads(committed.metadata)
        packed = base64.b64decode(fields.pop("decision", ""), validate=True)
        decision = {task: PreparedTransaction(*pair) for task, *pair in _DECIDED.iter_unpack(packed)}
        return LedgerEntry(committed.offset - 1, **fields, decision=decision)
    except (AttributeError, TypeError, ValueError, struct.error) as error:
        problem = f"the ledger holds offset {committed.offset} with metadata {committed.metadata!r}"
        raise SinkError(f"{problem}, which no sink wrote; use another sink name") from error


def is_written(last: LedgerEntry | None, batch_id: int, query_id: str | None) -> bool:
    """Return True if the ledger shows that a batch is visible. It must not be written again.

    A streaming query repeats its last batch alone. An earlier one has other rows: its checkpoint was restored. A sink
    without a batch (batch id NO_BATCH) belongs to no query yet.

    Raises:
        CheckpointMismatch: The last batch belongs to another query, so that equal ids mean different batches, or the
            batch of a query is an earlier one.
    """
    if last is None or last.batch_id == NO_BATCH:
        return False
    if query_id != last.query_id:
        writer, reader = (f"query {each}" if each else "no streaming query" for each in (last.query_id, query_id))
        raise CheckpointMismatch(
            f"the sink was written by {writer} up to batch {last.batch_id}, and not by {reader}. "
            "A query with a new checkpoint needs a new sink name, or the old checkpoint is missing."
        )
    if query_id is not None and batch_id < last.batch_id:
        raise CheckpointMismatch(
            f"the sink was written up to batch {last.batch_id}, and the checkpoint continues with batch {batch_id}. "
            "It was restored or copied, so it needs a new sink name."
        )
    return batch_id <= last.batch_id
