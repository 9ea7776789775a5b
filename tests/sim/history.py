"""Every operation of every client: what was asked, when, and what came of it.

`ok` and `fail` are certain; `info` means that it may have happened, now or later. A failure is definite only when the error proves that nothing was written.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

OK, FAIL, INFO = "ok", "fail", "info"
INIT, ADD, PRODUCE, END, FETCH, LIST = "init", "add", "produce", "end", "fetch", "list"
JOIN, SYNC, HEARTBEAT, LEAVE = "join", "sync", "heartbeat", "leave"
COMMIT, TXN_COMMIT, OFFSETS = "commit offsets", "commit offsets in a transaction", "fetch offsets"
ALONE = "offsets set or deleted by nobody's member"
READ_COMMITTED, READ_UNCOMMITTED = 1, 0

Partition = tuple[str, int]

NEVER: Final = 1 << 60


@dataclass(slots=True)
class Operation:
    """`invoked` and `completed` are places in the one order of all events; `error` is Kafka's code or -1 for a lost connection."""

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
    """Generation of a classic group, or epoch of a member of the consumer protocol."""
    offsets: tuple[tuple[Partition, int], ...] = ()
    """Committed with this request, or told in its answer."""
    granted: tuple[Partition, ...] | None = None
    """What the member has been told to be its own; None when nothing was said about that."""
    coordinated: bool = False
    """Whoever answered was, from the question to the answer, the coordinator that the controller names."""
    coordinated_at_request: bool = False
    """It was that when it was asked; it may have been deposed since."""
    stable: bool = False

    def before(self, other: "Operation") -> bool:
        """Whether this one was over when the other began."""
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
        """Operations by transaction number, in order."""
        found: dict[int, list[Operation]] = {}
        for operation in self.operations:
            if operation.transaction >= 0:
                found.setdefault(operation.transaction, []).append(operation)
        return found

    def as_lines(self) -> Iterator[str]:
        """One JSON object an event, invocations and completions in their order."""
        events = []
        for operation in self.operations:
            row = {name: value for name, value in asdict(operation).items() if value not in (-1, (), [], "", None)}
            events.append((operation.invoked, {**row, "type": "invoke", "t": operation.invoked_at}))
            if operation.completed != NEVER:
                events.append((operation.completed, {**row, "type": operation.outcome, "t": operation.completed_at}))
        for _, event in sorted(events, key=lambda each: each[0]):
            yield json.dumps(event, default=repr)
