"""kafka-consumer-groups and kafka-groups print the same output with both brokers, for groups of both protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import GroupOptions
from tests.interop.group_helpers import PROTOCOLS, make_topic, read_with_members, write_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.drivers.base import Driver
    from tests.support.tool_comparison import ToolComparison

TOOLS = "Kafka's tools 4.3"
GROUPS = "kafka-consumer-groups"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


class Members:
    """One group member on each broker. It has committed 20 records; the topic has 10 more records."""

    def __init__(self, pair: ToolComparison, drivers: Callable[[str], Driver], name: str, protocol: str) -> None:
        self.group = f"g-{name}"
        self.topic = name
        make_topic(pair, name)
        self._members = []
        for bootstrap in pair.bootstraps.values():
            write_records(drivers, bootstrap, name, 20)
            member = drivers("Java 4.4").member(bootstrap, name, GroupOptions(self.group, protocol))
            self._members.append(member)
            read_with_members([member], 20)
            member.commit()
            write_records(drivers, bootstrap, name, 10)

    def close(self) -> None:
        for member in self._members:
            member.close()
        self._members = []


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def members(pair: ToolComparison, drivers: Callable[[str], Driver], name: str, protocol: str) -> Iterator[Members]:
    members = Members(pair, drivers, name, protocol)
    yield members
    members.close()


@pytest.mark.feature("kafka-consumer-groups: list, describe (offsets, members, state)", client=TOOLS)
def test_group_with_a_member_is_described_the_same(pair: ToolComparison, members: Members, protocol: str) -> None:
    group = ("--group", members.group)
    for options in ((), ("--offsets",), ("--offsets", "--verbose"), ("--members",), ("--members", "--verbose")):
        lines = pair.same(GROUPS, "--describe", *group, *options, ordered=False)
        assert any(members.group in line for line in lines), lines
    for options in (("--state",), ("--state", "--verbose")):
        assert any("Stable" in line for line in pair.same(GROUPS, "--describe", *group, *options))
    pair.same(GROUPS, "--describe", "--all-groups", about=members.group, ordered=False)
    for options in ((), ("--state",), ("--state", "Stable"), ("--type",), ("--type", protocol), ("--type", "--state")):
        assert len(pair.same(GROUPS, "--list", *options, about=members.group, ordered=False)) == 2
    other_protocol = PROTOCOLS[protocol == "classic"]
    for options in (("--state", "Empty,Dead"), ("--type", other_protocol)):
        assert pair.same(GROUPS, "--list", *options, about=members.group, ordered=False) == ["exit 0"]
    assert pair.same(GROUPS, "--list", "--state", "NoSuch")[0] == "exit 1"
    for options in ((), ("--consumer",), ("--group-type", protocol), ("--protocol", "consumer")):
        assert len(pair.same("kafka-groups", "--list", *options, about=members.group, ordered=False)) == 2


@pytest.mark.feature("kafka-consumer-groups: operations refused while the group has members", client=TOOLS)
def test_reset_and_deletion_of_a_group_with_members_are_refused_the_same(
    pair: ToolComparison, members: Members
) -> None:
    group = ("--group", members.group)
    assert any("is not empty" in line for line in pair.same(GROUPS, "--delete", *group))
    pair.same(GROUPS, "--reset-offsets", *group, "--topic", members.topic, "--to-earliest", "--execute")
    pair.same(GROUPS, "--delete-offsets", *group, "--topic", members.topic)


@pytest.mark.feature("kafka-consumer-groups: reset-offsets, all forms", client=TOOLS)
def test_offset_resets_print_the_same(pair: ToolComparison, members: Members, tmp_path: Path) -> None:
    members.close()
    group, topic = ("--group", members.group), ("--topic", members.topic)
    assert pair.same(GROUPS, "--describe", *group, "--state")[0] == "exit 0"
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{members.topic},0,3\n{members.topic},1,99\n")
    forms = [
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-current",),
        ("--to-offset", "4"),
        ("--to-offset", "1000"),
        ("--shift-by", "-3"),
        ("--shift-by", "-100"),
        ("--shift-by", "100"),
        ("--by-duration", "P1D"),
        ("--to-datetime", "2025-06-15T15:06:45.000"),
        ("--to-datetime", "2025-06-15"),
        ("--from-file", str(plan)),
    ]
    for form in forms:
        for mode in ("--dry-run", "--execute"):
            pair.same(GROUPS, "--reset-offsets", *group, *topic, *form, mode, ordered=False)
        assert pair.same(GROUPS, "--describe", *group, ordered=False)[0] == "exit 0"
    reset = (GROUPS, "--reset-offsets", *group)
    one_partition = ("--topic", f"{members.topic}:1")
    for scope in (
        (*one_partition, "--to-offset", "2", "--execute"),
        ("--all-topics", "--shift-by", "1", "--export", "--dry-run"),
    ):
        assert pair.same(*reset, *scope, ordered=False)[0] == "exit 0"
    for wrong in (
        (*topic, "--execute"),
        ("--to-earliest",),
        ("--topic", "no-such-topic", "--to-earliest", "--execute"),
    ):
        pair.same(*reset, *wrong, ordered=False)
    new_group = ("--group", f"{members.group}-new")
    pair.same(GROUPS, "--reset-offsets", *new_group, *topic, "--to-earliest", "--execute", ordered=False)
    pair.same(GROUPS, "--describe", *new_group, ordered=False)


@pytest.mark.feature("kafka-consumer-groups: delete-offsets, delete", client=TOOLS)
def test_deletion_of_offsets_and_groups_prints_the_same(pair: ToolComparison, members: Members) -> None:
    members.close()
    group = ("--group", members.group)
    for topic in (f"{members.topic}:0", f"{members.topic}:0", "no-such-topic", f"{members.topic}:7"):
        pair.same(GROUPS, "--delete-offsets", *group, "--topic", topic)
    assert len(pair.same(GROUPS, "--describe", *group, about=members.group)) == 3
    pair.same(GROUPS, "--describe", *group, "--members")
    pair.same(GROUPS, "--delete-offsets", *group, "--topic", members.topic)
    pair.same(GROUPS, "--describe", *group)
    assert any("was successful" in line for line in pair.same(GROUPS, "--delete", *group))
    assert any("could not be deleted" in line for line in pair.same(GROUPS, "--delete", *group))
    for options in ((), ("--members",), ("--state",)):
        assert any("not found" in line for line in pair.same(GROUPS, "--describe", *group, *options))
    pair.same(GROUPS, "--delete-offsets", *group, "--topic", members.topic)
