"""Common parts of the readers with aiokafka and with kafka-python: settings, positions, and events of the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.chaos.clients.common import REQUEST_TIMEOUT_MS, Client, ClientSpec, python_settings
from tests.chaos.journal import shorten
from tests.sim.history import FAIL, FETCH, OK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

POLL_MS: Final = 300
"""Maximum time of one poll, and of one Fetch request in the broker, in milliseconds."""
BACKOFF_SECONDS: Final = 0.3
"""Pause after a failed call, in seconds."""
OFFSET_OUT_OF_RANGE: Final = 1


def reader_settings(spec: ClientSpec) -> dict[str, Any]:
    """Return the settings of a consumer without a group."""
    return {
        **python_settings(spec.access),
        "client_id": spec.process,
        "group_id": None,
        "isolation_level": "read_committed" if spec.committed else "read_uncommitted",
        "auto_offset_reset": "none",
        "request_timeout_ms": REQUEST_TIMEOUT_MS + 1_000,
        "fetch_max_wait_ms": POLL_MS,
        "retry_backoff_ms": 50,
        "metadata_max_age_ms": 5_000,
    }


class AssignedReader:
    """Positions of a consumer in its assigned partitions, from their start."""

    def __init__(self, client: Client, consumer: Any, partitions: Iterable[Any]) -> None:
        self._client = client
        self._consumer = consumer
        self._positions = dict.fromkeys(partitions, 0)
        consumer.assign(list(self._positions))
        for partition in self._positions:
            consumer.seek(partition, 0)

    def record(self, batches: Mapping[Any, Sequence[Any]]) -> None:
        """Write one FETCH per partition to the journal: its start offset, its records and its next offset."""
        for partition, messages in batches.items():
            number = self._begin(partition)
            records = [(message.offset, shorten(message.value)) for message in messages]
            self._positions[partition] = end = messages[-1].offset + 1
            self._client.journal.complete(FETCH, number, OK, records=records, next=end)

    def reset_positions(self, failure: Exception) -> None:
        """Write one failed FETCH per partition of an OffsetOutOfRangeError, and keep the positions."""
        for partition in failure.args[0]:
            number = self._begin(partition)
            self._client.journal.complete(FETCH, number, FAIL, error=OFFSET_OUT_OF_RANGE, reason=repr(failure))
            self._consumer.seek(partition, self._positions[partition])

    def _begin(self, partition: Any) -> int:
        return self._client.journal.invoke(
            FETCH,
            topic=partition.topic,
            partition=partition.partition,
            isolation=1 if self._client.spec.committed else 0,
            offset=self._positions[partition],
        )
