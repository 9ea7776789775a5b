"""What every client under test can be asked to do. A driver is thin: the client's own behavior must show through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

TIMEOUT_S = 30.0
TRANSACTION_TIMEOUT_MS = 60_000


class Fenced(Exception):
    """The client says that a newer producer has taken its transactional id (or that its transaction is gone for good)."""


@dataclass(frozen=True)
class Message:
    """A record as a client delivers it. ``timestamp`` in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class ProducerOptions:
    """``transaction_timeout_ms`` counts only with a transactional id; ``codec`` is Kafka's name, or none."""

    codec: str = "none"
    idempotent: bool = False
    transactional_id: str | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


@dataclass(frozen=True)
class GroupOptions:
    """``protocol`` is group.protocol: classic or consumer. Nothing is committed but by ``commit`` or a transaction.
    ``session_ms`` counts in the classic protocol; in the other one the broker has its own. With ``pattern`` what is
    subscribed to is a regular expression of RE2, which the broker matches: the consumer protocol alone has that."""

    group: str
    protocol: str = "classic"
    isolation: str = "read_committed"
    instance: str | None = None
    session_ms: int = 10_000
    pattern: bool = False


class GroupConsumer(Protocol):
    """A member of a group, subscribed to one topic, which it reads from the beginning where nothing is committed."""

    def poll(self, seconds: float) -> list[Message]:
        """What has come within ``seconds``; maybe nothing. A member has to poll to take part in rebalances."""

    def assigned(self) -> list[int]:
        """Its partitions, in order."""

    def commit(self) -> None:
        """Commit the position behind everything that was polled, and wait for it."""

    def committed(self, partitions: list[int]) -> list[int | None]:
        """The offset that the group has committed of each partition."""

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
        """Hand a record to the client; errors may come here or at the next flush or commit."""

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises on any failure; Fenced when it was fenced."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def send_offsets(self, consumer: GroupConsumer) -> None:
        """Commit the positions of ``consumer`` (of the same client library) with the transaction."""

    def close(self) -> None: ...


class Driver(Protocol):
    """One client library."""

    name: str

    def producer(self, bootstrap: str, options: ProducerOptions) -> ProducerDriver: ...

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        """Read assigned partitions from the beginning to the end offsets that the isolation level shows now."""

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> GroupConsumer:
        """A new member; it may take some polls until it has partitions."""

    def close(self) -> None:
        """End what the driver started."""
