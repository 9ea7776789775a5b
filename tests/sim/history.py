"""History of a run: every operation of every client, with its request, its times and its result.

Outcomes `ok` and `fail` are certain. `info` means that the operation may have taken effect, or may do so later. An
operation fails only if its error proves that nothing was written.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

OK, FAIL, INFO = "ok", "fail", "info"
INIT, ADD, PRODUCE, END, FETCH, LIST = "init", "add", "produce", "end", "fetch", "list"
JOIN, SYNC, HEARTBEAT, LEAVE = "join", "sync", "heartbeat", "leave"
COMMIT, TXN_COMMIT, OFFSETS = "commit offsets", "commit offsets in a transaction", "fetch offsets"
DECIDE = "decide"
"""Decision of the owner of a two-phase commit, which it records before EndTxn. It is no request."""
SIMPLE = "offsets set or deleted by a simple consumer"
READ_COMMITTED, READ_UNCOMMITTED = 1, 0

Partition = tuple[str, int]

NEVER: Final = 1 << 60


@dataclass(slots=True)
class Operation:
    """One request of a client and its result.

    `invoked` and `completed` are positions in the order of all events. `error` is Kafka's error code, or -1 for a lost
    connection.
    """

    kind: str
    process: str
    invoked: int
    invoked_at: float
    completed: int = NEVER
    completed_at: float = -1.0
    outcome: str = INFO
    error: int = 0
    transactional_id: str | None = None
    generation: int = 0
    transaction: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    partition: Partition = ("", -1)
    partitions: tuple[Partition, ...] = ()
    base_sequence: int = -1
    values: tuple[bytes, ...] = ()
    commit: bool = False
    isolation: int = READ_UNCOMMITTED
    offset: int = -1
    result_producer_id: int = -1
    result_producer_epoch: int = -1
    result_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    stable_bound: int = -1
    next_offset: int = -1
    records: list[tuple[int, bytes]] = field(default_factory=list)
    final: bool = False
    node: int = -1
    acks: int = -1
    group: str = ""
    member: str = ""
    instance: str = ""
    member_epoch: int = -1
    """Generation of a classic group, or member epoch of the consumer protocol."""
    offsets: tuple[tuple[Partition, int], ...] = ()
    """Offsets committed by this request, or returned in its response."""
    granted: tuple[Partition, ...] | None = None
    """Partitions assigned to the member by the response; None if the response contained no assignment."""
    coordinated: bool = False
    """True if the responding broker was the group's coordinator, by the controller, from request to response."""
    coordinated_at_request: bool = False
    """True if the responding broker was the coordinator when it received the request."""
    stable: bool = False
    deposed: bool = False
    """True if the responding broker was no longer the leader, by the controller."""
    leader_epoch: int = -1
    """Leader epoch in a Fetch request, which the broker compares with its own; -1 if the request has none."""

    def before(self, other: "Operation") -> bool:
        """Return True if this operation completed before `other` was invoked."""
        return self.completed < other.invoked


class History:
    """All operations in the order of their invocation."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.clock = 0

    def invoke(self, kind: str, process: str, now: float, **details: Any) -> Operation:
        self.clock += 1
        operation = Operation(kind, process, self.clock, now, **details)
        self.operations.append(operation)
        return operation

    def complete(self, operation: Operation, outcome: str, now: float, **details: Any) -> Operation:
        self.clock += 1
        operation.completed, operation.completed_at, operation.outcome = self.clock, now, outcome
        for name, value in details.items():
            setattr(operation, name, value)
        return operation

    def of(self, *kinds: str) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.kind in kinds)

    def transactions(self) -> dict[int, list[Operation]]:
        """Return the operations of each transaction number, in order."""
        by_transaction: dict[int, list[Operation]] = {}
        for operation in self.operations:
            if operation.transaction >= 0:
                by_transaction.setdefault(operation.transaction, []).append(operation)
        return by_transaction

    def as_lines(self) -> Iterator[str]:
        """Yield one JSON object per event: invocations and completions in their order."""
        events = []
        for operation in self.operations:
            row = {name: value for name, value in asdict(operation).items() if value not in (-1, (), [], "", None)}
            events.append((operation.invoked, {**row, "type": "invoke", "t": operation.invoked_at}))
            if operation.completed != NEVER:
                events.append((operation.completed, {**row, "type": operation.outcome, "t": operation.completed_at}))
        for _, event in sorted(events, key=lambda row: row[0]):
            yield json.dumps(event, default=repr)
