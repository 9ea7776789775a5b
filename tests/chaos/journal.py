"""The history as JSON lines: every process writes its own file, one object an event, and all of them together are read back in one order of time.

`{t, proc, op, type: invoke|ok|fail|info, id, ...}`: `t` is the machine's monotonic clock in seconds, the same for all processes; `id` joins an
invocation with its completion. What has no completion may have happened, now or later, like `info`. `fail` is written only for what was
refused before it was sent. Faults are events of the process `nemesis`, what the proxy saw are events of `proxy`.
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
    """A value that is never used again: two digits for the process, six for its count, base 36."""
    digits = []
    for number, width in ((count, 6), (process_number, 2)):
        rest = number
        for _ in range(width):
            rest, digit = divmod(rest, 36)
            digits.append(DIGITS[digit])
        assert rest == 0, "more values than names"
    return "".join(reversed(digits))


def expand(name: str) -> bytes:
    """What is sent for a name: padded to a size that follows from the name, so that a damaged value is seen."""
    data = name.encode()
    return data + b"." * (sum(data) * 7 % PADDING_BYTES_MAX)


def shorten(value: bytes | None) -> str:
    """The name in a value; the whole value when it is not what was sent under that name."""
    text = (value or b"").decode("latin-1")
    name = text[:NAME_BYTES]
    return name if value == expand(name) else text


class Journal:
    """Writes the events of one process. A line is in the page cache when `write` returns: a kill of the process loses none."""

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
        with self._lock:  # so that times in a file never go back
            event = {"t": round(now(), 6), "proc": self.process, "op": op, "type": kind, **details}
            os.write(self._file, json.dumps(event, separators=(",", ":")).encode() + b"\n")


@dataclass
class Told:
    """What all journals say: the clients' history for the checkers, and what the nemesis and the proxy noted, by time."""

    history: History = field(default_factory=History)
    notes: list[dict[str, Any]] = field(default_factory=list)
    events: int = 0


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """Events of one file. The last line of a killed process may be cut off; anything else that is no JSON is an error."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)


def read(directory: Path) -> Told:
    """Merge all `*.jsonl` of a directory into one history."""
    told = Told()
    open_operations: dict[tuple[str, int], Operation] = {}
    streams = [events_of(path) for path in sorted(directory.glob("*.jsonl"))]
    for event in heapq.merge(*streams, key=lambda each: each["t"]):
        told.events += 1
        if event["op"] not in {INIT, PRODUCE, END, FETCH, LIST}:
            told.notes.append(event)
            continue
        key = (event["proc"], event["id"])
        if event["type"] == INVOKE:
            open_operations[key] = _invoke(told.history, event)
            continue
        operation = open_operations.pop(key, None)
        if operation is None:
            assert event["type"] == INFO, event  # the Java client may tell of one failure twice
            continue
        outcome = {OK: OK, FAIL: FAIL, INFO: INFO}[event["type"]]
        told.history.complete(operation, outcome, event["t"], **_result(operation, event))
    return told


def _invoke(history: History, event: dict[str, Any]) -> Operation:
    details: dict[str, Any] = {}
    if "topic" in event:
        details["partition"] = (sys.intern(event["topic"]), event["partition"])
    if "value" in event:
        details["values"] = (event["value"].encode("latin-1"),)
    if "tid" in event:
        details["transactional_id"] = sys.intern(event["tid"])
    for ours, theirs in INVOKED_FIELDS:
        if ours in event:
            details[theirs] = event[ours]
    if event["op"] == END:
        details["generation"] = 0  # a client library does not say which identity an end has given it
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
"""Field of the journal -> field of an Operation. An incarnation stands for the producer id, which client libraries do not show."""


def _result(operation: Operation, event: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"error": event.get("error", 0)}
    if event["type"] != OK:
        return result
    if operation.kind == FETCH:
        records = [(offset, value.encode("latin-1")) for offset, value in event["records"]]
        return result | {"records": records, "next_offset": event["next"]}
    if operation.kind == INIT:
        return result | {"result_producer_id": operation.producer_id, "result_producer_epoch": 0}
    return result | {"result_offset": event.get("at", -1)}
