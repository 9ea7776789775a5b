import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.coordinators.txn_verification import (
    TransactionalBatch,
    TransactionVerifier,
    produce_terms,
    refusal_for,
)
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.config import LogConfig
from odradek.storage.producers.state import NO_GUARD
from tests.support import broker_context

E = ErrorCode


class FakeCoordinator:
    """Coordinator with prepared results, one for result call. It records the calls."""

    def __init__(self, *results: dict[TopicPartition, ErrorCode] | Refusal, later: bool = False) -> None:
        self.results = list(results)
        self.later = later
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        return self._respond("verify", partitions)

    def add_partitions_for_produce(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        return self._respond("add", partitions)

    def _respond(
        self, call: str, partitions: Sequence[TopicPartition]
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        self.calls.append((call, tuple(partitions)))
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        future: asyncio.Future[dict[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        if isinstance(result, Refusal):
            if not self.later:
                raise result
            future.get_loop().call_soon(future.set_exception, result)
        elif self.later:
            future.get_loop().call_soon(future.set_result, result)
        else:
            future.set_result(result)
        return future


def batch(
    index: int,
    *,
    guard: int | Refusal = 5,
    producer_id: int = 7,
    leads: ErrorCode = E.NONE,
    config: LogConfig = LogConfig(),  # noqa: B008  a value
) -> TransactionalBatch:
    def start_verification(*_: object, supports_epoch_bump: bool) -> int:
        if isinstance(guard, Refusal):
            raise guard
        return guard

    def check_leader() -> None:
        if leads:
            raise Refusal(leads)

    log = SimpleNamespace(producers=SimpleNamespace(start_verification=start_verification), config=config)
    partition: Any = SimpleNamespace(topic="t", index=index, log=log, check_leader=check_leader)
    return TransactionalBatch(partition, producer_id, 3, 0)


async def outcomes(
    coordinator: FakeCoordinator, batches: list[TransactionalBatch], version: int, *assignments: str
) -> list[Any]:
    config = broker_context.config("add.partitions.to.txn.retry.backoff.ms=1", *assignments)
    started = TransactionVerifier(coordinator, config).start("id", produce_terms(version), batches)
    outcomes_of_batches = started if isinstance(started, list) else await started
    return [(result.error, result.message) if isinstance(result, Refusal) else result for result in outcomes_of_batches]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("version", "call"), [(11, "verify"), (12, "add")])
async def test_only_partitions_without_an_open_transaction_are_sent_to_the_coordinator(
    version: int, call: str, later: bool
) -> None:
    coordinator = FakeCoordinator({TopicPartition("t", 1): E.NONE}, later=later)
    assert await outcomes(coordinator, [batch(0, guard=NO_GUARD), batch(1, guard=9)], version) == [NO_GUARD, 9]
    assert coordinator.calls == [(call, (("t", 1),))]


async def test_coordinator_is_not_called_when_every_transaction_is_open() -> None:
    coordinator = FakeCoordinator({})
    assert await outcomes(coordinator, [batch(0, guard=NO_GUARD)], 12) == [NO_GUARD]
    assert coordinator.calls == []


@pytest.mark.parametrize(("version", "calls"), [(11, 0), (12, 1)])
async def test_disabled_verification_omits_verify_and_not_the_implicit_add(version: int, calls: int) -> None:
    coordinator = FakeCoordinator({TopicPartition("t", 0): E.NONE})
    await outcomes(coordinator, [batch(0, config=LogConfig(verification_enabled=False))], version)
    assert len(coordinator.calls) == calls


async def test_two_producers_in_one_request_refuse_the_whole_request() -> None:
    with pytest.raises(Refusal) as refused:
        await outcomes(FakeCoordinator({}), [batch(0), batch(1, producer_id=8)], 12)
    assert refused.value.error is E.INVALID_PRODUCER_ID_MAPPING


async def test_partitions_with_errors_are_not_sent_to_the_coordinator() -> None:
    coordinator = FakeCoordinator({TopicPartition("t", 2): E.NONE})
    batches = [
        batch(0, leads=E.NOT_LEADER_OR_FOLLOWER),
        batch(1, guard=Refusal(E.INVALID_PRODUCER_EPOCH)),
        batch(2, guard=4),
    ]
    assert await outcomes(coordinator, batches, 12) == [
        (E.NOT_LEADER_OR_FOLLOWER, None),
        (E.INVALID_PRODUCER_EPOCH, None),
        4,
    ]
    assert coordinator.calls == [("add", (("t", 2),))]


@pytest.mark.parametrize("later", [False, True])
async def test_refusal_by_the_coordinator_applies_to_each_partition(later: bool) -> None:
    coordinator = FakeCoordinator(Refusal(E.NOT_COORDINATOR), later=later)
    outcomes_of_batches = await outcomes(coordinator, [batch(0), batch(1)], 12)
    assert [error for error, _ in outcomes_of_batches] == [E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS]


async def test_concurrent_transactions_is_retried_until_it_passes() -> None:
    busy = {TopicPartition("t", 0): E.CONCURRENT_TRANSACTIONS}
    coordinator = FakeCoordinator(busy, busy, {TopicPartition("t", 0): E.NONE})
    assert await outcomes(coordinator, [batch(0)], 12) == [5]
    assert len(coordinator.calls) == 3


async def test_retries_end_after_the_maximum_backoff_with_concurrent_transactions() -> None:
    coordinator = FakeCoordinator({TopicPartition("t", 0): E.CONCURRENT_TRANSACTIONS})
    outcomes_of_batches = await outcomes(coordinator, [batch(0)], 12, "add.partitions.to.txn.retry.backoff.max.ms=5")
    assert outcomes_of_batches == [(E.CONCURRENT_TRANSACTIONS, None)]
    assert 2 <= len(coordinator.calls) <= 6


async def test_old_producer_gets_not_enough_replicas_for_concurrent_transactions() -> None:
    coordinator = FakeCoordinator({TopicPartition("t", 0): E.CONCURRENT_TRANSACTIONS})
    outcomes_of_batches = await outcomes(coordinator, [batch(0)], 11)
    assert outcomes_of_batches[0][0] is E.NOT_ENOUGH_REPLICAS
    assert len(coordinator.calls) == 1


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        (E.PRODUCER_FENCED, 12, E.INVALID_PRODUCER_EPOCH),
        (E.CLUSTER_AUTHORIZATION_FAILED, 12, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 10, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 11, E.TRANSACTION_ABORTABLE),
        (E.NETWORK_EXCEPTION, 12, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 12, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_NOT_AVAILABLE, 3, E.NOT_ENOUGH_REPLICAS),
        (E.NOT_COORDINATOR, 12, E.NOT_ENOUGH_REPLICAS),
        (E.CONCURRENT_TRANSACTIONS, 11, E.NOT_ENOUGH_REPLICAS),
        (E.CONCURRENT_TRANSACTIONS, 12, E.CONCURRENT_TRANSACTIONS),
        (E.INVALID_PRODUCER_ID_MAPPING, 12, E.INVALID_PRODUCER_ID_MAPPING),
        (E.INVALID_TXN_STATE, 12, E.INVALID_TXN_STATE),
    ],
)
def test_refusal_for_maps_coordinator_errors_to_produce_errors(
    error: ErrorCode, version: int, expected: ErrorCode
) -> None:
    assert refusal_for(error, version).error is expected
