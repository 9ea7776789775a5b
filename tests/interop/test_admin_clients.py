"""Admin clients of other libraries: their requests for all topics, and for the configuration of a topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from kafka.admin import KafkaAdminClient

from tests.interop.drivers.base import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def by_confluent(bootstrap: str) -> list[str]:
    return list(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=TIMEOUT_S).topics)


def by_kafka_python(bootstrap: str) -> list[str]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        topics: list[str] = client.list_topics()
        return topics
    finally:
        client.close()


def by_aiokafka(bootstrap: str) -> list[str]:
    async def list_topics() -> list[str]:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            topics: list[str] = await client.list_topics()
            return topics
        finally:
            await client.close()

    return asyncio.run(list_topics())


@pytest.mark.parametrize("listing", [by_confluent, by_kafka_python, by_aiokafka])
def test_request_for_all_topics_lists_them(listing: Callable[[str], list[str]], bootstrap: str, topic: str) -> None:
    assert topic in listing(bootstrap)


def test_topic_is_described_with_its_configuration(bootstrap: str, topic: str) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = client.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert (settings["cleanup.policy"].value, settings["cleanup.policy"].is_default) == ("delete", True)
