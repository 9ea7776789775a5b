"""Users of a secured demo on a real cluster: what each of them may do, and their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek import LocalCluster
from odradek.client import (
    AuthenticationFailed,
    ClientError,
    Consumer,
    Producer,
    ProducerRecord,
    describe_acls,
    describe_users,
)
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.cluster.topics import create_topics
from odradek.pipeline.demo.users import DemoUsers, Names
from odradek.pipeline.flights.progress_topic import await_stable

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.full]

NAMES = Names("flights", "progress", "delays", "copies", "run-1", "spark.copies")
TOPICS = dict.fromkeys(("flights", "progress", "delays", "copies"), 1)


@pytest.fixture
def admin() -> Iterator[Access]:
    with LocalCluster(security="sasl_ssl", brokers=1) as cluster:
        properties = cluster.client_config("java")
        del properties["bootstrap.servers"]
        yield Access(cluster.bootstrap, properties)


async def can_write(access: Access, topic: str, transactional_id: str | None = None) -> bool:
    async with access.cluster() as cluster:
        producer = Producer(cluster, transactional_id=transactional_id)
        try:
            if transactional_id is not None:
                await producer.begin()
            await producer.send(topic, [ProducerRecord(b"key", b"value")])
            if transactional_id is not None:
                await producer.abort()
        except ClientError:
            return False
        return True


async def can_read(access: Access, topic: str) -> bool:
    async with access.cluster() as cluster:
        try:
            _ = [batch async for batch in Consumer(cluster, topic).batches()]
        except ClientError:
            return False
        return True


def test_users_may_do_what_their_part_needs_and_are_removed_at_the_end(admin: Access) -> None:
    create_topics(admin, TOPICS)
    users = DemoUsers(admin, "run-1", NAMES)
    users.add()
    found = users.accesses
    parts = {"producer": found.producer, "spark": found.spark, "auditor": found.auditor}

    async def permissions() -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        pairs = [(part, topic) for part in parts for topic in TOPICS]
        writes = {pair for pair in pairs if await can_write(parts[pair[0]], pair[1])}
        return writes, {pair for pair in pairs if await can_read(parts[pair[0]], pair[1])}

    writes, reads = asyncio.run(permissions())
    assert writes == {("producer", "flights"), ("producer", "progress"), ("spark", "delays"), ("spark", "copies")}
    assert {pair for pair in reads if pair[0] != "auditor"} == {
        ("producer", "progress"),
        ("spark", "flights"),
        ("spark", "delays"),
        ("spark", "copies"),
    }
    assert {topic for part, topic in reads if part == "auditor"} == set(TOPICS)
    assert asyncio.run(can_write(found.producer, "flights", "run-1"))
    assert not asyncio.run(can_write(found.producer, "flights", "run-2"))
    await_stable(found.auditor, TOPICS)
    users.remove()

    async def remaining() -> tuple[set[str], set[str]]:
        async with admin.cluster() as cluster:
            principals = {acl.principal for acl in await describe_acls(cluster)}
            return principals, {credential.user for credential in await describe_users(cluster)}

    assert asyncio.run(remaining()) == ({"User:alice"}, {"admin", "alice"})
    with pytest.raises(AuthenticationFailed):
        asyncio.run(can_read(found.producer, "progress"))
