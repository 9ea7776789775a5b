"""Interface of the drivers, one per client library. A driver is thin, so that tests see the behavior of the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

TIMEOUT_S = 30.0
TRANSACTION_TIMEOUT_MS = 60_000


class Fenced(Exception):
    """The client reported that a newer producer has its transactional id, or that its transaction was aborted."""


@dataclass(frozen=True)
class Message:
    """A record that a client received. `timestamp` is in milliseconds since 1970."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class ProducerOptions:
    """Options of a producer. `transaction_timeout_ms` needs a transactional id. `codec` is Kafka's name, or none."""

    codec: str = "none"
    idempotent: bool = False
    transactional_id: str | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


@dataclass(frozen=True)
class GroupOptions:
    """Options of a group member. Offsets are committed only by `commit` or in a transaction.

    `protocol` is group.protocol: classic or consumer. `session_ms` applies to the classic protocol only; in the
    consumer protocol, the broker determines the session time-out. With `pattern`, the subscription is a regular
    expression (RE2) that the broker matches. Only the consumer protocol has it.
    """

    group: str
    protocol: str = "classic"
    isolation: str = "read_committed"
    instance: str | None = None
    session_ms: int = 10_000
    pattern: bool = False


class GroupConsumer(Protocol):
    """A member of a group, subscribed to one topic. It starts at offset 0 of a partition without a committed offset."""

    def poll(self, seconds: float) -> list[Message]:
        """Return the records that arrive within `seconds`. A member must poll to take part in rebalances."""

    def assigned(self) -> list[int]:
        """Return the assigned partitions in order."""

    def commit(self) -> None:
        """Commit the position after the last polled records, and wait for the response."""

    def committed(self, partitions: list[int]) -> list[int | None]:
        """Return the committed offset of each partition."""

    def close(self) -> None:
        """Leave the group."""


class ProducerDriver(Protocol):
    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int | None = None,
    ) -> None:
        """Pass a record to the client. An error may be raised here, or by the next flush or commit."""

    def flush(self) -> None:
        """Wait until all records are acknowledged. Raise Fenced if the producer was fenced, other errors unchanged."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def send_offsets(self, consumer: GroupConsumer) -> None:
        """Commit the positions of a consumer of the same library in the transaction."""

    def close(self) -> None: ...


class Driver(Protocol):
    """One client library."""

    name: str

    def producer(self, bootstrap: str, options: ProducerOptions) -> ProducerDriver: ...

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        """Read assigned partitions from the beginning to the end offsets that the isolation level shows now."""

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> GroupConsumer:
        """Return a new member. It may need several polls until it has partitions."""

    def close(self) -> None:
        """Stop all processes and threads of the driver."""
