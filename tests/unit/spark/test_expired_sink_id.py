"""Batches of a run whose transactional id expires on the brokers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import TopicPartition
from odradek.client.errors import refused
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.spark import SinkInUse, exactly_once, transaction
from odradek.spark.exactly_once import Batch, write_exactly_once
from odradek.spark.options import sink_options
from odradek.spark.outcome import Outcome, WrittenPartition, failure_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from odradek.client import ProducerIdentity
    from odradek.spark.ledger import LedgerEntry

of_two_runs = pytest.mark.parametrize(("query_id", "second_run"), [(None, "run 1"), ("query", "run 2")])
"""Outside of a query, all batches of a process have one run id. A restarted query has another one."""
SINK = sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "sink": "s", "topic": "t"})


class Coordinator:
    """In-memory coordinator of the transactional id of the sink, with its ledger. `current` is None if it expired."""

    def __init__(self) -> None:
        self.current: tuple[int, int] | None = None
        self.entry: LedgerEntry | None = None
        self._next_id = 100

    async def request_coordinator(self, _kind: Any, _key: str, request: Any, *_: Any, **__: Any) -> Any:
        if isinstance(request, InitProducerIdRequest):
            return self._initialized(request)
        assert isinstance(request, EndTxnRequest)
        is_known = self.current is not None and self.current[0] == request.producer_id
        return SimpleNamespace(error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def _initialized(self, request: InitProducerIdRequest) -> Any:
        if self.current is None:
            self.create()
        elif request.producer_id not in {-1, self.current[0]}:
            return SimpleNamespace(error_code=ErrorCode.PRODUCER_FENCED)
        else:
            self.current = self.current[0], self.current[1] + 1
        assert self.current is not None
        return SimpleNamespace(error_code=0, producer_id=self.current[0], producer_epoch=self.current[1])

    def create(self) -> None:
        self._next_id += 1
        self.current = self._next_id, 0


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    found = Coordinator()

    @asynccontextmanager
    async def connection(_: Any) -> AsyncIterator[Coordinator]:
        yield found

    async def read_ledger(*_: Any, **__: Any) -> LedgerEntry | None:
        return found.entry

    async def send_ledger(_cluster: Any, _options: Any, _identity: Any, entry: LedgerEntry) -> None:
        found.entry = entry

    async def nothing(*_: Any) -> dict[str, int]:
        return {}

    monkeypatch.setattr(exactly_once, "_sessions", {})
    monkeypatch.setattr(exactly_once, "partition_counts", nothing)
    monkeypatch.setattr(transaction, "connection", connection)
    monkeypatch.setattr(transaction, "read_ledger", read_ledger)
    monkeypatch.setattr(transaction, "send_ledger", send_ledger)
    for name in ("check", "check_topic", "_create_ledger_topic"):
        monkeypatch.setattr(transaction, name, nothing)
    return found


def write(coordinator: Coordinator, batch_id: int, query_id: str | None, run_id: str) -> None:
    def job(identity: ProducerIdentity, _counts: Mapping[str, int]) -> Outcome:
        if coordinator.current == (identity.producer_id, identity.epoch):
            return Outcome([WrittenPartition(TopicPartition("t", 0), 1, 0, 0, 0)])
        error = refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "t-0 was not added to the transaction")
        return Outcome(failures=[(failure_of(error), str(error))])

    write_exactly_once(job, SINK, Batch(batch_id, query_id, run_id))


@of_two_runs
def test_batch_after_a_skipped_one_is_written_if_the_transactional_id_expired(
    coordinator: Coordinator, query_id: str | None, second_run: str
) -> None:
    write(coordinator, 0, query_id, "run 1")
    write(coordinator, 0, query_id, second_run)
    coordinator.current = None
    write(coordinator, 1, query_id, second_run)
    assert coordinator.entry is not None
    assert coordinator.entry.batch_id == 1
    assert coordinator.current == (102, 0)


@of_two_runs
def test_batch_is_fenced_if_another_query_initialized_the_expired_transactional_id(
    coordinator: Coordinator, query_id: str | None, second_run: str
) -> None:
    write(coordinator, 0, query_id, "run 1")
    write(coordinator, 0, query_id, second_run)
    coordinator.create()
    with pytest.raises(SinkInUse, match="another query uses the sink name s and has fenced this query"):
        write(coordinator, 1, query_id, second_run)
    assert coordinator.current == (102, 0)
