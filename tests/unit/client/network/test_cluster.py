"""Bootstrap, metadata, and requests that follow coordinators while brokers fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import (
    Cluster,
    CoordinatorType,
    NotFound,
    Refused,
    RetryPolicy,
    Settings,
    TopicPartition,
    Unreachable,
)
from odradek.client.network import cluster as network_cluster
from odradek.client.network.cluster import Purpose
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.metadata import MetadataRequest
from tests.support.fake_kafka import FakeKafka, Fault, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_kafka import Step

GROUP = "g"


def deleted(code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=GROUP, error_code=code)])


def delete(kafka: FakeKafka, *steps: Step, settings: Settings | None = None) -> ErrorCode:
    """Delete a group with these responses and return the code of the last one."""
    kafka.script(DeleteGroupsRequest, *steps)

    async def test() -> ErrorCode:
        async with Cluster(kafka.bootstrap, settings) as cluster:
            response = await cluster.request_coordinator(
                CoordinatorType.GROUP,
                GROUP,
                DeleteGroupsRequest(groups_names=[GROUP]),
                lambda response: int(response.results[0].error_code),
            )
            return ErrorCode(response.results[0].error_code)

    return run(kafka, test())


def nodes(kafka: FakeKafka, request: type[Any]) -> list[int]:
    return [received.node_id for received in kafka.of(request)]


def moved(kafka: FakeKafka, node_id: int, step: Step) -> Callable[[object], Step]:
    """Return a step that moves the group to another coordinator first."""

    def respond(_: object) -> Step:
        kafka.coordinators[GROUP] = node_id
        return step

    return respond


def test_the_first_address_that_accepts_a_connection_is_used(kafka: FakeKafka) -> None:
    async def test() -> None:
        kafka.stop(1)
        async with Cluster(kafka.bootstrap):
            pass

    run(kafka, test())
    assert nodes(kafka, MetadataRequest) == [2]


def test_without_any_broker_each_address_is_named(kafka: FakeKafka) -> None:
    async def test() -> None:
        for node_id in (1, 2, 3):
            kafka.stop(node_id)
        with pytest.raises(Unreachable) as raised:
            async with Cluster(kafka.bootstrap):
                pass
        assert all(kafka.address(node_id) in str(raised.value) for node_id in (1, 2, 3))
        assert raised.value.remedy == "is it running? see: odradek up --help"

    run(kafka, test())


def test_a_lost_bootstrap_connection_is_replaced(kafka: FakeKafka) -> None:
    async def test() -> None:
        async with Cluster(kafka.address(1)) as cluster:
            kafka.stop(1)
            await asyncio.sleep(1)
            await cluster.fetch_metadata([])

    run(kafka, test())
    assert nodes(kafka, MetadataRequest) == [1, 2], "the brokers of the metadata are tried, too"


def test_metadata_names_brokers_topics_and_leaders(kafka: FakeKafka) -> None:
    kafka.leaders = {"t": [2, -1]}

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            metadata = await cluster.fetch_metadata(None)
            assert list(metadata.brokers) == [1, 2, 3]
            assert [part.leader for part in metadata.topics["t"].partitions.values()] == [2, -1]
            assert (await cluster.topic("t")).partition(0).replicas == (1, 2, 3)
            with pytest.raises(NotFound, match="topic t has no partition 2; it has 2"):
                (await cluster.topic("t")).partition(2)
            with pytest.raises(NotFound, match="topic none does not exist") as raised:
                await cluster.topic("none")
            assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert str(TopicPartition("t", 0)) == "t-0"

    run(kafka, test())
    names = [
        None if received.request.topics is None else len(received.request.topics)
        for received in kafka.of(MetadataRequest)
    ]
    assert names == [0, None, 1], "a known topic is not fetched again"


def test_topics_that_do_not_exist_any_more_are_forgotten(kafka: FakeKafka) -> None:
    kafka.leaders = {"t": [2], "u": [2]}

    async def test() -> list[bool]:
        async with Cluster(kafka.bootstrap) as cluster:
            await cluster.fetch_metadata(None)
            del kafka.leaders["t"]
            await cluster.fetch_metadata(["t", "none"])
            before = len(kafka.of(MetadataRequest))
            await cluster.topic("u")
            known = [len(kafka.of(MetadataRequest)) == before]
            for name in ("t", "none"):
                with pytest.raises(NotFound):
                    await cluster.topic(name)
                known.append(len(kafka.of(MetadataRequest)) == before)
                before = len(kafka.of(MetadataRequest))
            return known

    assert run(kafka, test()) == [True, False, False]


def test_coordinators_in_memory_are_bounded(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_cluster, "COORDINATORS_MAX", 2)

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            for group in ("a", "b", "c", "c", "b", "a"):
                await cluster.coordinator(CoordinatorType.GROUP, group)

    run(kafka, test())
    requested = [received.request.coordinator_keys[0] for received in kafka.of(FindCoordinatorRequest)]
    assert requested == ["a", "b", "c", "a"]


def test_requests_to_one_broker_share_a_connection_and_fetches_have_their_own(kafka: FakeKafka) -> None:
    kafka.script(ListGroupsRequest, *[ListGroupsResponse()] * 4)

    async def test() -> bool:
        async with Cluster(kafka.address(1)) as cluster:
            await asyncio.gather(*(cluster.request(node_id, ListGroupsRequest()) for node_id in (1, 1, 2, 2)))
            return await cluster.connection(1, Purpose.FETCH) is await cluster.connection(1)

    assert not run(kafka, test())
    assert nodes(kafka, ApiVersionsRequest) == [1, 2, 1]


def test_a_broker_that_is_not_in_the_metadata_is_unreachable(kafka: FakeKafka) -> None:
    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            with pytest.raises(Unreachable, match="broker 7 is not in the cluster's metadata"):
                await cluster.connection(7)

    run(kafka, test())


def test_a_loading_coordinator_gets_the_request_again(kafka: FakeKafka) -> None:
    loading = deleted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert delete(kafka, loading, loading, deleted(ErrorCode.NONE)) is ErrorCode.NONE
    assert len(kafka.of(FindCoordinatorRequest)) == 1


@pytest.mark.parametrize("step", [deleted(ErrorCode.NOT_COORDINATOR), Fault.DISCONNECT, Fault.SILENCE])
def test_a_coordinator_that_moved_or_failed_is_found_again(kafka: FakeKafka, step: Step) -> None:
    kafka.coordinators[GROUP] = 2
    assert delete(kafka, moved(kafka, 3, step), deleted(ErrorCode.NONE)) is ErrorCode.NONE
    assert nodes(kafka, DeleteGroupsRequest) == [2, 3]
    assert len(kafka.of(FindCoordinatorRequest)) == 2


def test_a_permanent_error_is_returned_after_one_attempt(kafka: FakeKafka) -> None:
    assert delete(kafka, deleted(ErrorCode.NON_EMPTY_GROUP)) is ErrorCode.NON_EMPTY_GROUP


def test_a_retriable_error_is_returned_at_the_deadline(kafka: FakeKafka) -> None:
    settings = Settings(retry=RetryPolicy(deadline_s=2.0, jitter=0))
    loading = deleted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert delete(kafka, *[loading] * 9, settings=settings) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(kafka.of(DeleteGroupsRequest)) == 5, "after 0, 0.1, 0.3, 0.7 and 1.5 s"


def test_a_missing_coordinator_is_refused_at_the_deadline(kafka: FakeKafka) -> None:
    def unknown(request: FindCoordinatorRequest) -> Any:
        kafka.scripts.pop(FindCoordinatorRequest)
        response = kafka.step(request)
        kafka.script(FindCoordinatorRequest, unknown)
        response.coordinators[0].error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return response

    kafka.script(FindCoordinatorRequest, unknown)

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            with pytest.raises(Refused, match=f"coordinator of {GROUP}: COORDINATOR_NOT_AVAILABLE") as raised:
                await cluster.coordinator(CoordinatorType.GROUP, GROUP)
            assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert 28 < kafka.loop.time() < 31

    run(kafka, test())
