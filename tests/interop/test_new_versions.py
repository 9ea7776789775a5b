"""Requests in the versions of Kafka 4.4: the responses equal those of Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.unregister_controller import UnregisterControllerRequest
from tests.interop.drivers.base import TIMEOUT_S
from tests.interop.group_helpers import make_topic
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from collections.abc import Set as AbstractSet

    from tests.support.tool_comparison import ToolComparison

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
BEFORE_THE_METADATA = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
"""Errors of a broker that has not received the metadata of a new topic yet."""
UNKNOWN_TOPIC = UUID(int=77)


class Broker:
    """A connection to a broker, which repeats requests that the coordinator cannot process yet."""

    def __init__(self, client: RawClient) -> None:
        self._client = client

    async def call(self, request: Any, version: int) -> Any:
        return await self._client.call(request, version, timeout=TIMEOUT_S)

    async def until_ready(
        self,
        request: Any,
        version: int,
        codes: Callable[[Any], list[int]],
        retriable: AbstractSet[ErrorCode] = RETRIABLE,
    ) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while retriable & set(codes(response := await self.call(request, version))):
            assert time.monotonic() < deadline, response
        return response

    async def find_coordinators(self, key: str) -> None:
        """Find both coordinators of a key. Kafka creates their topics on the first such request."""
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            await self.until_ready(request, 4, lambda response: [row.error_code for row in response.coordinators])

    async def topic_id(self, name: str) -> UUID:
        """Return the id of a topic. A broker receives its metadata after the controller has created it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        response = await self.until_ready(
            request, 12, lambda response: [response.topics[0].error_code], BEFORE_THE_METADATA
        )
        topic_id: UUID = response.topics[0].topic_id
        return topic_id

    async def begin(self, transactional_id: str) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id, 60_000)
        response = await self.until_ready(request, 5, lambda response: [response.error_code])
        return response.producer_id, response.producer_epoch

    async def commit_offsets(self, request: TxnOffsetCommitRequest) -> list[tuple[UUID, list[tuple[int, int]]]]:
        response = await self.until_ready(request, 6, lambda response: [code for _, code in partitions_of(response)])
        return [
            (topic.topic_id, sorted((row.partition_index, row.error_code) for row in topic.partitions))
            for topic in response.topics
        ]


def partitions_of(response: Any) -> list[tuple[int, int]]:
    return [(row.partition_index, row.error_code) for topic in response.topics for row in topic.partitions]


def both(pair: ToolComparison, scenario: Callable[[Broker], Awaitable[Any]]) -> dict[str, Any]:
    """Return the result of a scenario by broker."""

    async def run(bootstrap: str) -> Any:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        client = await RawClient.connect(host, int(port))
        try:
            broker = Broker(client)
            await broker.find_coordinators("key")
            return await scenario(broker)
        finally:
            client.close()

    return {name: asyncio.run(run(bootstrap)) for name, bootstrap in pair.bootstraps.items()}


def offsets(topic_id: UUID, *partitions: int) -> TxnOffsetCommitRequestTopic:
    rows = [TxnOffsetCommitRequestPartition(index, 5) for index in partitions]
    return TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=rows)


def test_offsets_of_a_transaction_are_committed_by_topic_id(pair: ToolComparison, name: str) -> None:
    make_topic(pair, name)

    async def scenario(broker: Broker) -> Any:
        topic_id = await broker.topic_id(name)
        labels = {topic_id: "known", UNKNOWN_TOPIC: "unknown", UUID(int=0): "zero"}
        producer_id, epoch = await broker.begin(name)
        topics = [offsets(topic_id, 0, 9), offsets(UNKNOWN_TOPIC, 0), offsets(UUID(int=0), 0)]
        request = TxnOffsetCommitRequest(name, f"g-{name}", producer_id, epoch, topics=topics)
        committed = {labels[key]: rows for key, rows in await broker.commit_offsets(request)}
        ended = await broker.until_ready(
            EndTxnRequest(name, producer_id, epoch, True), 5, lambda response: [response.error_code]
        )
        wanted = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(f"g-{name}", topics=[wanted])], require_stable=True)
        response = await broker.until_ready(
            fetch, 10, lambda response: [row.error_code for row in response.groups[0].topics[0].partitions]
        )
        [row] = response.groups[0].topics[0].partitions
        return committed, ended.error_code, (row.committed_offset, row.error_code)

    results = both(pair, scenario)
    assert results["odradek"] == results["kafka"]
    committed, ended, fetched = results["odradek"]
    unknown_partition = (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    unknown_topic = [(0, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert committed == {"known": [(0, 0), unknown_partition], "unknown": unknown_topic, "zero": unknown_topic}
    assert (ended, fetched) == (0, (5, 0))


@pytest.mark.parametrize("version", [5, 6])
def test_unknown_group_and_member_of_a_transactional_commit_are_refused(
    pair: ToolComparison, name: str, version: int
) -> None:
    make_topic(pair, name)

    async def scenario(broker: Broker) -> Any:
        topic_id = await broker.topic_id(name)
        producer_id, epoch = await broker.begin(name)
        plain = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[OffsetCommitRequestPartition(0, 1)])
        create = OffsetCommitRequest(f"g-{name}", topics=[plain])
        await broker.until_ready(create, 10, lambda response: [code for _, code in partitions_of(response)])
        results = []
        for group, generation, member in ((f"none-{name}", 3, "m"), (f"g-{name}", 3, "m"), (f"g-{name}", -1, "m")):
            topic = TxnOffsetCommitRequestTopic(name, topic_id, [TxnOffsetCommitRequestPartition(0, 5)])
            request = TxnOffsetCommitRequest(name, group, producer_id, epoch, generation, member, topics=[topic])
            response = await broker.until_ready(
                request, version, lambda response: [code for _, code in partitions_of(response)]
            )
            results += partitions_of(response)
        return results

    results = both(pair, scenario)
    assert results["odradek"] == results["kafka"]
    unknown = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.ILLEGAL_GENERATION
    assert results["odradek"][0] == (0, unknown)


def test_deleted_groups_have_the_results_of_kafka(pair: ToolComparison, name: str) -> None:
    make_topic(pair, name)

    async def scenario(broker: Broker) -> Any:
        topic_id = await broker.topic_id(name)
        plain = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[OffsetCommitRequestPartition(0, 1)])
        create = OffsetCommitRequest(f"g-{name}", topics=[plain])
        await broker.until_ready(create, 10, lambda response: [code for _, code in partitions_of(response)])
        response = await broker.call(DeleteGroupsRequest([f"g-{name}", f"none-{name}", ""]), 3)
        return {result.group_id: (result.error_code, result.error_message) for result in response.results}

    results = both(pair, scenario)
    assert results["odradek"] == results["kafka"]
    assert results["odradek"][f"none-{name}"] == (ErrorCode.GROUP_ID_NOT_FOUND, None)


def test_unregistration_of_a_controller_is_refused_as_by_kafka(pair: ToolComparison) -> None:
    async def scenario(broker: Broker) -> Any:
        responses = [await broker.call(UnregisterControllerRequest(controller), 0) for controller in (1, 99)]
        return [(response.error_code, response.error_message) for response in responses]

    results = both(pair, scenario)
    assert results["odradek"] == results["kafka"]
    assert [error for error, _ in results["odradek"]] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
    ]
