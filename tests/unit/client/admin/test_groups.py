"""Groups of several coordinators and of both protocols."""

from __future__ import annotations

import pytest

from odradek.client import Cluster, InvalidArgument, list_groups
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.support.fake_kafka import FakeKafka, run


@pytest.mark.parametrize(("states", "types"), [(["Stable", "Sleepy"], []), ([], ["sleepy"])])
def test_a_state_or_type_that_kafka_does_not_have_is_an_invalid_argument(
    kafka: FakeKafka, states: list[str], types: list[str]
) -> None:
    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            with pytest.raises(InvalidArgument, match=r"no such (state|type): [Ss]leepy; use one of "):
                await list_groups(cluster, states, types)

    run(kafka, test())
    assert kafka.of(ListGroupsRequest) == []


def test_groups_of_all_coordinators_are_listed_once_they_are_loaded(kafka: FakeKafka) -> None:
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    loads: list[int] = []

    def listed(request: ListGroupsRequest) -> ListGroupsResponse:
        node_id = kafka.received[-1].node_id
        if node_id == 2 and len(loads) < 3:
            loads.append(node_id)
            return loading
        return ListGroupsResponse(groups=[ListedGroup(group_id=f"g{4 - node_id}", group_state="Stable")])

    kafka.script(ListGroupsRequest, *[listed] * 6)

    async def test() -> list[tuple[str, str, int]]:
        async with Cluster(kafka.bootstrap) as cluster:
            return [(row.group, row.type, row.coordinator) for row in await list_groups(cluster)]

    assert run(kafka, test()) == [("g1", "classic", 3), ("g2", "classic", 2), ("g3", "classic", 1)]
