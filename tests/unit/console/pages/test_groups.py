"""The pages of groups, against a broker in this process and against scripted brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.client import Cluster, PlannedOffset, Producer, ProducerRecord, commit_offsets
from odradek.console.model.groups import ROWS_PER_PAGE, GroupSelection, read_groups
from odradek.console.settings import Settings
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.support.console_client import SMALL, browser
from tests.support.fake_kafka import FakeKafka, Fault, run, virtual_loop
from tests.support.ports import free_port
from tests.support.running_node import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.console.model.groups import GroupList

GROUP = "<b>billing</b>"
ADDRESS = "/groups/id?id=%3Cb%3Ebilling%3C%2Fb%3E"
GROUPS = 5_000


async def test_lag_to_the_last_stable_offset_is_shown_beside_that_to_the_high_watermark(tmp_path: Path) -> None:
    async with running(tmp_path, *SMALL) as node:
        settings = Settings(f"127.0.0.1:{node.node.listeners[0].port}")
        async with browser(settings) as client, Cluster(settings.bootstrap) as cluster:
            assert "The cluster has no groups" in (await client.get("/groups")).text
            assert "does not exist" in (await client.get(ADDRESS)).text
            assert (await cluster.fetch_metadata(None)).topics == {}
            await node.produce("orders", b"0", b"1", b"2")
            await node.init("any")
            producer = Producer(cluster, transactional_id="open")
            await producer.begin()
            await producer.send("orders", [ProducerRecord(None, b"3"), ProducerRecord(None, b"4")])
            await commit_offsets(cluster, GROUP, [PlannedOffset("orders", 0, None, 1)])
            client.app.state.sessions.viewer("").cache.clear()
            listed = (await client.get("/groups")).text
            shown = (await client.get(ADDRESS)).text
    for text in (listed, shown):
        assert "<b>" not in text
        assert "&lt;b&gt;billing&lt;/b&gt;" in text
        assert "2 held back" in text
    assert "<dt>Lag to last stable offset</dt><dd>2 <small>can be read</small></dd>" in shown
    assert "<dt>Lag to high watermark</dt><dd>4</dd>" in shown


@pytest.mark.parametrize("path", ["/groups", ADDRESS])
async def test_page_without_a_broker_shows_an_error(path: str) -> None:
    async with browser(Settings(f"127.0.0.1:{free_port()}")) as client:
        page = await client.get(path)
    assert (page.status, "not read" in page.text) == (200, True)


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    """Two scripted brokers on virtual time. The test starts them by `run`."""
    with virtual_loop() as loop:
        yield FakeKafka(loop, 2)


def many(kafka: FakeKafka) -> None:
    """Let broker 1 coordinate many groups; broker 2 does not respond."""
    rows = [
        ListedGroup(group_id=f"g{number:04}", group_state="Stable", group_type="consumer") for number in range(GROUPS)
    ]

    def listed(_: ListGroupsRequest) -> ListGroupsResponse | Fault:
        return ListGroupsResponse(groups=rows) if kafka.received[-1].node_id == 1 else Fault.DISCONNECT

    def described(request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(groups=[ConsumerGroup(group_id=name) for name in request.group_ids])

    kafka.script(ListGroupsRequest, *[listed] * 2)
    kafka.script(ConsumerGroupDescribeRequest, described)
    kafka.script(OffsetFetchRequest, OffsetFetchResponse())


def test_members_and_offsets_are_requested_for_the_groups_of_a_page_alone(kafka: FakeKafka) -> None:
    many(kafka)

    async def test() -> GroupList:
        async with Cluster(kafka.bootstrap) as cluster:
            return await read_groups(cluster, GroupSelection(text="G", page=3))

    found = run(kafka, test())
    assert (found.paging.total, found.paging.pages, len(found.rows)) == (GROUPS, GROUPS // ROWS_PER_PAGE, ROWS_PER_PAGE)
    assert found.rows[0].group.group == "g0100"
    assert (found.states, list(found.unreachable)) == ({"Stable": GROUPS}, [2])
    [request] = kafka.of(ConsumerGroupDescribeRequest)
    assert len(request.request.group_ids) == ROWS_PER_PAGE
