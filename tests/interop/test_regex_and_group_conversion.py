"""Groups of the consumer protocol on both brokers: subscriptions by regular expression, and conversion of groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import TIMEOUT_S, Driver, GroupOptions
from tests.interop.drivers.line_process import ClientFailed
from tests.interop.group_helpers import make_topic, read_with_members, write_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.base import GroupConsumer
    from tests.support.tool_comparison import ToolComparison

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

KNOW_THE_CONSUMER_PROTOCOL = ("confluent-kafka", "Java 4.4", "Java 4.3")
GROUPS = "kafka-consumer-groups"
POLL_S = 0.1
ALONE, SHARED = [[0, 1]], [[0], [1]]


def poll_until_assigned(members: list[GroupConsumer], assignments: list[list[int]]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while sorted(member.assigned() for member in members) != assignments:
        assert time.monotonic() < deadline, [member.assigned() for member in members]
        for member in members:
            assert member.poll(POLL_S) == [], "committed records must not be received again"


@pytest.mark.feature("groups, consumer protocol (KIP-848): subscription by regular expression")
@pytest.mark.parametrize("driver", KNOW_THE_CONSUMER_PROTOCOL, indirect=True)
def test_members_subscribe_by_regular_expression(
    driver: Driver, drivers: Callable[[str], Driver], pair: ToolComparison, name: str
) -> None:
    for topic in (f"{name}-a", f"{name}-b", f"{name}-other"):
        make_topic(pair, topic)
    group = f"g-{name}"
    options = GroupOptions(group, "consumer", pattern=True)
    members = []
    for bootstrap in pair.bootstraps.values():
        for topic in (f"{name}-a", f"{name}-b", f"{name}-other"):
            write_records(drivers, bootstrap, topic, 10)
        member = driver.member(bootstrap, f"{name}-[ab]", options)
        members.append(member)
        read_with_members([member], 20)
        assert member.assigned() == [0, 0, 1, 1]
        member.commit()
    for columns in (("--offsets",), ("--members", "--verbose"), ("--state", "--verbose")):
        lines = pair.same(GROUPS, "--describe", "--group", group, *columns, ordered=False)
        assert any(group in line for line in lines), lines
    for member in members:
        member.close()


def test_invalid_regular_expression_is_refused(
    drivers: Callable[[str], Driver], pair: ToolComparison, name: str
) -> None:
    errors = []
    for bootstrap in pair.bootstraps.values():
        member = drivers("Java 4.4").member(bootstrap, "(", GroupOptions(f"g-{name}", "consumer", pattern=True))
        deadline = time.monotonic() + TIMEOUT_S
        with pytest.raises(ClientFailed) as refused:
            while time.monotonic() < deadline:
                member.poll(POLL_S)
        errors.append(str(refused.value))
        member.close()
    message_of_odradek, kafkas = [text.partition("is not a valid regular expression: ") for text in errors]
    assert "InvalidRegularExpression" in message_of_odradek[0]
    assert message_of_odradek[:2] == kafkas[:2]  # the rest of the message is from the regular expression library
    assert message_of_odradek[2].startswith("missing ): (. ")


@pytest.mark.feature("groups: conversion of active groups to the consumer protocol and back")
@pytest.mark.parametrize("driver", KNOW_THE_CONSUMER_PROTOCOL, indirect=True)
def test_active_group_is_converted_and_converted_back(
    driver: Driver, drivers: Callable[[str], Driver], pair: ToolComparison, name: str
) -> None:
    """The first member of the consumer protocol converts the group. When the last one leaves, it is converted back."""
    make_topic(pair, name)
    group = f"g-{name}"
    by_protocol = {protocol: GroupOptions(group, protocol) for protocol in ("classic", "consumer")}
    active: dict[str, list[GroupConsumer]] = {bootstrap: [] for bootstrap in pair.bootstraps.values()}

    def join(protocol: str, assignments: list[list[int]]) -> None:
        for bootstrap, members in active.items():
            members.append(driver.member(bootstrap, name, by_protocol[protocol]))
            poll_until_assigned(members, assignments)
        work()

    def leave(assignments: list[list[int]]) -> None:
        for members in active.values():
            members.pop(0).close()
            poll_until_assigned(members, assignments)
        work()

    def work() -> None:
        for bootstrap, members in active.items():
            write_records(drivers, bootstrap, name, 10)
            read_with_members(members, 10)
            for member in members:
                member.commit()

    def is_of(protocol: str) -> None:
        assert pair.same("kafka-groups", "--list", about=group) == ["exit 0", f"{group} {protocol} consumer"]
        pair.same(GROUPS, "--describe", "--group", group, "--offsets", ordered=False)

    join("classic", ALONE)
    is_of("Classic")
    join("consumer", SHARED)
    is_of("Consumer")
    leave(ALONE)
    is_of("Consumer")
    join("classic", SHARED)
    is_of("Consumer")
    leave(ALONE)
    is_of("Classic")
    for members in active.values():
        members.pop().close()
