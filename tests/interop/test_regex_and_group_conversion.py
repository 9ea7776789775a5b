"""Groups of the consumer protocol on both brokers: subscriptions by regular expression, and conversion of groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import TIMEOUT_S, Driver, GroupOptions
from tests.interop.drivers.line_process import ClientFailed
from tests.interop.group_helpers import make_topic, read, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.base import GroupConsumer
    from tests.support.side_by_side import SideBySide

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

KNOW_THE_CONSUMER_PROTOCOL = ("confluent-kafka", "Java 4.3")
GROUPS = "kafka-consumer-groups"
POLL_S = 0.1
ALONE, SHARED = [[0, 1]], [[0], [1]]


def until_assigned(members: list[GroupConsumer], wanted: list[list[int]]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while sorted(member.assigned() for member in members) != wanted:
        assert time.monotonic() < deadline, [member.assigned() for member in members]
        for member in members:
            assert member.poll(POLL_S) == [], "nothing that is committed comes again"


@pytest.mark.feature("groups, consumer protocol (KIP-848): subscription by regular expression")
@pytest.mark.parametrize("driver", KNOW_THE_CONSUMER_PROTOCOL, indirect=True)
def test_members_subscribe_by_regular_expression(
    driver: Driver, drivers: Callable[[str], Driver], pair: SideBySide, name: str
) -> None:
    for topic in (f"{name}-a", f"{name}-b", f"{name}-other"):
        make_topic(pair, topic)
    group = f"g-{name}"
    options = GroupOptions(group, "consumer", pattern=True)
    members = []
    for bootstrap in pair.bootstraps.values():
        for topic in (f"{name}-a", f"{name}-b", f"{name}-other"):
            write(drivers, bootstrap, topic, 10)
        member = driver.member(bootstrap, f"{name}-[ab]", options)
        members.append(member)
        read([member], 20)
        assert member.assigned() == [0, 0, 1, 1]
        member.commit()
    for what in (("--offsets",), ("--members", "--verbose"), ("--state", "--verbose")):
        found = pair.same(GROUPS, "--describe", "--group", group, *what, ordered=False)
        assert any(group in line for line in found), found
    for member in members:
        member.close()


def test_invalid_regular_expression_is_refused(drivers: Callable[[str], Driver], pair: SideBySide, name: str) -> None:
    errors = []
    for bootstrap in pair.bootstraps.values():
        member = drivers("Java 4.3").member(bootstrap, "(", GroupOptions(f"g-{name}", "consumer", pattern=True))
        deadline = time.monotonic() + TIMEOUT_S
        with pytest.raises(ClientFailed) as refused:
            while time.monotonic() < deadline:
                member.poll(POLL_S)
        errors.append(str(refused.value))
        member.close()
    ours, kafkas = [text.partition("is not a valid regular expression: ") for text in errors]
    assert "InvalidRegularExpression" in ours[0]
    assert ours[:2] == kafkas[:2]  # the rest of the message is from the regular expression library
    assert ours[2].startswith("missing ): (. ")


@pytest.mark.feature("groups: conversion of active groups to the consumer protocol and back")
@pytest.mark.parametrize("driver", KNOW_THE_CONSUMER_PROTOCOL, indirect=True)
def test_active_group_is_converted_and_converted_back(
    driver: Driver, drivers: Callable[[str], Driver], pair: SideBySide, name: str
) -> None:
    """The first member of the consumer protocol converts the group; the last one that leaves converts it back."""
    make_topic(pair, name)
    group = f"g-{name}"
    by_protocol = {each: GroupOptions(group, each) for each in ("classic", "consumer")}
    active: dict[str, list[GroupConsumer]] = {bootstrap: [] for bootstrap in pair.bootstraps.values()}

    def join(protocol: str, wanted: list[list[int]]) -> None:
        for bootstrap, members in active.items():
            members.append(driver.member(bootstrap, name, by_protocol[protocol]))
            until_assigned(members, wanted)
        work()

    def leave(wanted: list[list[int]]) -> None:
        for members in active.values():
            members.pop(0).close()
            until_assigned(members, wanted)
        work()

    def work() -> None:
        for bootstrap, members in active.items():
            write(drivers, bootstrap, name, 10)
            read(members, 10)
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
