"""The history of a run as JSON lines.

Each process writes one file with one object per event; `read` merges the files by time.

Format: `{t, proc, op, type: invoke|ok|fail|info, id, ...}`.

- `t` is the machine's monotonic clock in seconds, which is common to all processes.
- `id` joins an invocation with its completion.
- An operation with type `info`, or without a completion, may have taken effect, or may still take effect.
- `fail` means that the client refused the operation before it sent a request.
- Injected faults are events of the process `fault-injector`. Frames with faults are events of the process `proxy`.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import sys
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.sim.history import END, FAIL, FETCH, INFO, INIT, LIST, OK, PRODUCE, History, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INVOKE: Final = "invoke"
NAME_BYTES: Final = 8
PADDING_BYTES_MAX: Final = 100
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def now() -> float:
    return time.monotonic()


def name_of(process_number: int, count: int) -> str:
    """Return the unique name of a record: two digits for the process and six for its record count, in base 36."""
    digits = []
    for number, width in ((count, 6), (process_number, 2)):
        rest = number
        for _ in range(width):
            rest, digit = divmod(rest, 36)
            digits.append(DIGITS[digit])
        assert rest == 0, "the process has used all names"
    return "".join(reversed(digits))


def expand(name: str) -> bytes:
    """Return the record value for a name. Its padding follows from the name, which makes corruption visible."""
    data = name.encode()
    return data + b"." * (sum(data) * 7 % PADDING_BYTES_MAX)


def shorten(value: bytes | None) -> str:
    """Return the name in a record value, or the whole value if it differs from the value that was sent."""
    text = (value or b"").decode("latin-1")
    name = text[:NAME_BYTES]
    return name if value == expand(name) else text


class Journal:
    """Event file of one process. `write` stores each line in the page cache, so a kill of the process loses none."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        weakref.finalize(self, os.close, self._file)
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def invoke(self, op: str, **details: Any) -> int:
        number = next(self._ids)
        self.write(op, INVOKE, id=number, **details)
        return number

    def complete(self, op: str, number: int, outcome: str, **details: Any) -> None:
        self.write(op, outcome, id=number, **details)

    def write(self, op: str, kind: str, **details: Any) -> None:
        with self._lock:  # times within a file never decrease
            event = {"t": round(now(), 6), "proc": self.process, "op": op, "type": kind, **details}
            os.write(self._file, json.dumps(event, separators=(",", ":")).encode() + b"\n")


@dataclass
class MergedJournals:
    """Merged journals of a run: the clients' operations in `history`, all other events in `notes`."""

    history: History = field(default_factory=History)
    notes: list[dict[str, Any]] = field(default_factory=list)
    events: int = 0


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of one file. The last line may be incomplete after a kill; other invalid JSON is an error."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)


def read(directory: Path) -> MergedJournals:
    """Merge all `*.jsonl` files of a directory."""
    journals = MergedJournals()
    open_operations: dict[tuple[str, int], Operation] = {}
    streams = [events_of(path) for path in sorted(directory.glob("*.jsonl"))]
    for event in heapq.merge(*streams, key=lambda event: event["t"]):
        journals.events += 1
        if event["op"] not in {INIT, PRODUCE, END, FETCH, LIST}:
            journals.notes.append(event)
            continue
        key = (event["proc"], event["id"])
        if event["type"] == INVOKE:
            open_operations[key] = _invoke(journals.history, event)
            continue
        operation = open_operations.pop(key, None)
        if operation is None:
            assert event["type"] == INFO, event  # the Java client may record one failure twice
            continue
        outcome = {OK: OK, FAIL: FAIL, INFO: INFO}[event["type"]]
        journals.history.complete(operation, outcome, event["t"], **_result(operation, event))
    return journals


def _invoke(history: History, event: dict[str, Any]) -> Operation:
    details: dict[str, Any] = {}
    if "topic" in event:
        details["partition"] = (sys.intern(event["topic"]), event["partition"])
    if "value" in event:
        details["values"] = (event["value"].encode("latin-1"),)
    if "tid" in event:
        details["transactional_id"] = sys.intern(event["tid"])
    for journal_field, operation_field in INVOKED_FIELDS:
        if journal_field in event:
            details[operation_field] = event[journal_field]
    if event["op"] == END:
        details["generation"] = 0  # client libraries do not show the producer epoch after EndTxn
    if details.get("producer_id", -1) >= 0:
        details["producer_epoch"] = 0
    return history.invoke(event["op"], sys.intern(event["proc"]), event["t"], **details)


INVOKED_FIELDS: Final = (
    ("txn", "transaction"),
    ("generation", "generation"),
    ("incarnation", "producer_id"),
    ("seq", "base_sequence"),
    ("commit", "commit"),
    ("isolation", "isolation"),
    ("offset", "offset"),
    ("final", "final"),
)
"""(journal field, field of Operation). Client libraries do not show their producer id; an incarnation replaces it."""


def _result(operation: Operation, event: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"error": event.get("error", 0)}
    if event["type"] != OK:
        return result
    if operation.kind == FETCH:
        records = [(offset, value.encode("latin-1")) for offset, value in event["records"]]
        return result | {"records": records, "next_offset": event["next"]}
    if operation.kind == INIT:
        return result | {"result_producer_id": operation.producer_id, "result_producer_epoch": 0}
    return result | {"result_offset": event.get("offset", -1)}
