"""Groups of both protocols, and offsets in transactions, with each client library."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import TIMEOUT_S, GroupOptions, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.base import Driver, GroupConsumer, Message

pytestmark = pytest.mark.interop

PARTITIONS = [0, 1]
POLL_S = 0.2
KNOW_THE_CONSUMER_PROTOCOL = ("confluent-kafka", "Java 4.4", "Java 4.3")


def write(driver: Driver, bootstrap: str, topic: str, first: int, count: int) -> list[bytes]:
    producer = driver.producer(bootstrap, ProducerOptions())
    contents = [b"%06d" % number for number in range(first, first + count)]
    for number, content in enumerate(contents):
        producer.send(topic, content, partition=number % 2)
    producer.flush()
    producer.close()
    return contents


def read_with_members(members: list[GroupConsumer], count: int) -> list[Message]:
    """Poll with all members until they have received `count` records in total, and then once more."""
    messages: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} records"
        messages += poll(members)
    return messages + poll(members)


def poll(members: list[GroupConsumer]) -> list[Message]:
    return [message for member in members for message in member.poll(POLL_S)]


def poll_until_assigned(members: list[GroupConsumer], assignments: list[list[int]]) -> list[Message]:
    """Poll with all members until their partition counts are those of `wanted` in any order. Return the records."""
    messages: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while sorted(member.assigned() for member in members) != assignments:
        assert time.monotonic() < deadline, [member.assigned() for member in members]
        messages += poll(members)
    return messages


def values(messages: list[Message]) -> list[bytes]:
    return sorted(message.value for message in messages if message.value is not None)


def members_share_a_topic(driver: Driver, bootstrap: str, topic: str, protocol: str) -> None:
    contents = write(driver, bootstrap, topic, 0, 100)
    options = GroupOptions(f"g-{topic}", protocol)
    first = driver.member(bootstrap, topic, options)
    messages = read_with_members([first], 100)
    assert (values(messages), first.assigned()) == (contents, PARTITIONS)
    first.commit()
    assert first.committed(PARTITIONS) == [50, 50]
    second = driver.member(bootstrap, topic, options)
    assert poll_until_assigned([first, second], [[0], [1]]) == []  # committed records are not received again
    further_contents = write(driver, bootstrap, topic, 100, 100)
    assert values(read_with_members([first, second], 100)) == further_contents
    for member in (first, second):
        member.commit()
    first.close()
    assert poll_until_assigned([second], [PARTITIONS]) == []
    last = write(driver, bootstrap, topic, 200, 10)
    assert values(read_with_members([second], 10)) == last
    second.close()  # without a commit
    third = driver.member(bootstrap, topic, options)
    assert values(read_with_members([third], 10)) == last
    third.close()


@pytest.mark.core
@pytest.mark.feature("groups, classic protocol: members join, leave, and continue at the committed offsets")
def test_classic_group_rebalances_and_commits(driver: Driver, bootstrap: str, topic: str) -> None:
    members_share_a_topic(driver, bootstrap, topic, "classic")


@pytest.mark.feature("groups, consumer protocol (KIP-848): members join, leave, and continue at the committed offsets")
@pytest.mark.parametrize("driver", KNOW_THE_CONSUMER_PROTOCOL, indirect=True)
def test_consumer_group_rebalances_and_commits(driver: Driver, bootstrap: str, topic: str) -> None:
    members_share_a_topic(driver, bootstrap, topic, "consumer")


def static_members_come_back(driver: Driver, bootstrap: str, topic: str, protocol: str) -> None:
    write(driver, bootstrap, topic, 0, 100)
    options = [GroupOptions(f"g-{topic}", protocol, instance=f"instance-{number}") for number in range(2)]
    members = [driver.member(bootstrap, topic, member_options) for member_options in options]
    poll_until_assigned(members, [[0], [1]])
    partitions = members[0].assigned()
    for member in members:
        member.close()
    members = [driver.member(bootstrap, topic, member_options) for member_options in options]
    poll_until_assigned(members, [[0], [1]])
    assert members[0].assigned() == partitions
    for member in members:
        member.close()


@pytest.mark.feature("groups, classic protocol: a static member returns to its partitions")
def test_static_member_of_a_classic_group_keeps_its_partitions(driver: Driver, bootstrap: str, topic: str) -> None:
    static_members_come_back(driver, bootstrap, topic, "classic")


@pytest.mark.feature("groups, consumer protocol (KIP-848): a static member returns to its partitions")
@pytest.mark.parametrize("driver", KNOW_THE_CONSUMER_PROTOCOL, indirect=True)
def test_static_member_of_a_consumer_group_keeps_its_partitions(driver: Driver, bootstrap: str, topic: str) -> None:
    static_members_come_back(driver, bootstrap, topic, "consumer")


def read_process_write(driver: Driver, bootstrap: str, topic: str, output: str, protocol: str) -> None:
    contents = write(driver, bootstrap, topic, 0, 40)
    options = GroupOptions(f"g-{topic}", protocol)
    producer = driver.producer(bootstrap, ProducerOptions(transactional_id=f"id-{topic}"))
    producer.init()
    for commit in (False, True):
        member = driver.member(bootstrap, topic, options)
        messages = read_with_members([member], 40)
        assert values(messages) == contents
        producer.begin()
        for message in messages:
            assert message.value is not None
            producer.send(
                output, message.value + (b" committed" if commit else b" aborted"), partition=message.partition
            )
        producer.send_offsets(member)
        if commit:
            producer.commit()
        else:
            producer.abort()
            assert member.committed(PARTITIONS) == [None, None]
        member.close()
    member = driver.member(bootstrap, topic, options)
    assert member.committed(PARTITIONS) == [20, 20]
    further_contents = write(driver, bootstrap, topic, 40, 2)
    assert values(read_with_members([member], 2)) == further_contents
    member.close()
    producer.close()
    processed = driver.consume(bootstrap, output, PARTITIONS, "read_committed")
    assert values(processed) == [content + b" committed" for content in contents]


@pytest.mark.core
@pytest.mark.feature("transactions: read-process-write with offsets of a classic group")
def test_offsets_of_a_classic_group_commit_or_abort_with_the_transaction(
    driver: Driver, bootstrap: str, topic: str, other_topic: str
) -> None:
    read_process_write(driver, bootstrap, topic, other_topic, "classic")


@pytest.mark.feature("transactions: read-process-write with offsets of a consumer group (KIP-848)")
@pytest.mark.parametrize("driver", KNOW_THE_CONSUMER_PROTOCOL, indirect=True)
def test_offsets_of_a_consumer_group_commit_or_abort_with_the_transaction(
    driver: Driver, bootstrap: str, topic: str, other_topic: str
) -> None:
    read_process_write(driver, bootstrap, topic, other_topic, "consumer")


def test_members_of_all_clients_share_a_classic_group(
    drivers: Callable[[str], Driver], bootstrap: str, topic: str
) -> None:
    """Assignors have the same names and formats in all clients: the leader assigns partitions to members of others."""
    contents = write(drivers("Java 4.4"), bootstrap, topic, 0, 100)
    for name in ("kafka-python", "aiokafka", "confluent-kafka", "Java 4.4"):
        member = drivers(name).member(bootstrap, topic, GroupOptions(f"g-{topic}"))
        messages = read_with_members([member], len(contents))
        assert values(messages) == contents
        member.commit()
        member.close()
        contents = write(drivers(name), bootstrap, topic, 0, 10)
