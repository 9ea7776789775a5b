"""The ledger of a sink: the last written batch, as a committed offset with metadata."""

from __future__ import annotations

import base64
import hashlib
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
FINGERPRINT_DIGITS: Final = 16
"""Hexadecimal digits of a fingerprint. A chance match of two plans has a probability of 2**-64."""
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
        plan: Fingerprint of the source offsets of the batch, or None if it is not known.
        decision: Transactions of tasks that belong to the batch, by task. They must be committed, and all others of
            tasks must be aborted.
    """

    batch_id: int
    query_id: str | None
    run_id: str
    rows: int
    checksum: int
    tasks: int = 0
    plan: str | None = None
    decision: Mapping[int, PreparedTransaction] = field(default_factory=dict)


def encoded(entry: LedgerEntry) -> CommittedOffset:
    """Return the committed offset of an entry: batch id + 1, and the other fields as JSON."""
    fields: dict[str, Any] = asdict(entry)
    del fields["batch_id"], fields["decision"]
    for name in ("tasks", "plan"):
        if not fields[name]:
            del fields[name]
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


def fingerprint(offsets: str) -> str | None:
    """Return a fingerprint of the source offsets of a batch from its file in the checkpoint, or None without any.

    The first line is the version of the file. The second line has the time and the settings of the batch, and does not
    count. The others are the end offsets of the sources.
    """
    sources = offsets.splitlines()[2:]
    if not sources:
        return None
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:FINGERPRINT_DIGITS]


def is_written(last: LedgerEntry | None, batch_id: int, query_id: str | None, plan: str | None = None) -> bool:
    """Return True if the ledger shows that a batch is visible. It must not be written again.

    A streaming query repeats its last batch alone. An earlier one has other rows: its checkpoint was restored. A sink
    without a batch (batch id NO_BATCH) belongs to no query yet. `plan` is the fingerprint of the source offsets of the
    batch that the query has planned.

    Raises:
        CheckpointMismatch: The last batch belongs to another query, so that equal ids mean different batches, or the
            batch of a query is an earlier one, or has other source offsets.
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
    if batch_id == last.batch_id and plan is not None and last.plan is not None and plan != last.plan:
        raise CheckpointMismatch(
            f"batch {batch_id} of the sink has other source offsets than batch {batch_id} of the checkpoint. "
            "The checkpoint was restored or copied, so it needs a new sink name."
        )
    return batch_id <= last.batch_id
