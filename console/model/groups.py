"""Groups with their members, and their lag to the last stable offset and to the high watermark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client import describe_group
from odradek.client.admin.group_members import members_of_groups
from odradek.client.admin.groups import committed_of_groups, listed_groups, total, with_lag
from odradek.client.admin.offsets import ends_of_partitions
from odradek.client.errors import NotFound, Refused
from odradek.client.network.fan_out import FanOut
from odradek.console.model.internal_topic import read_internal_topic
from odradek.console.model.paging import Paging, paging_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from odradek.client import Cluster, GroupDescription, GroupLag, GroupListing, GroupMember, GroupPartition

ALL: Final = "all"
ROWS_PER_PAGE: Final = 50
"""Maximum groups per page. Members and offsets are requested for the groups of the page alone."""
PARTITION_ROWS_MAX: Final = 2_000
"""Maximum partitions of a group that a page shows: those with the largest lag. The totals include all partitions."""

MEMBER_ROWS_MAX: Final = 1_000
"""Maximum members of a group that a page shows: those with the largest lag. Brokers have no maximum by default."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group of a page. A value is None if its coordinator or a leader did not return it.

    Attributes:
        group: The group with its lag.
        members: Number of members.
        epoch: Group epoch. Also None for a classic group.
    """

    group: GroupLag
    members: int | None
    epoch: int | None


@dataclass(frozen=True, slots=True)
class GroupSelection:
    """Groups to show: by a part of the group id, by state and type, and the page from 1."""

    text: str = ""
    state: str = ALL
    type: str = ALL
    page: int = 1


@dataclass(frozen=True, slots=True)
class GroupList:
    """A page of groups.

    Attributes:
        rows: Groups of the page, by group id.
        paging: The page.
        states: Number of all groups by state, selected or not.
        types: Number of all groups by type, selected or not.
        unreachable: Reason by node id, for each broker whose groups or offsets are missing.
    """

    rows: list[GroupRow]
    paging: Paging
    states: dict[str, int]
    types: dict[str, int]
    unreachable: dict[int, str]


async def read_groups(cluster: Cluster, selection: GroupSelection) -> GroupList:
    """Read a page of groups. Brokers that do not respond are left out."""
    fan_out = FanOut(cluster, tolerant=True)
    every = await listed_groups(fan_out)
    matching = selected(every, selection)
    paging = paging_of(len(matching), selection.page, ROWS_PER_PAGE)
    page = matching[paging.first : paging.last]
    members = await members_of_groups(fan_out, page)
    committed = await committed_of_groups(fan_out, [row for row in page if row.type.lower() != "share"])
    names = sorted({key.topic for offsets in committed.values() for key in offsets})
    topics = (await cluster.fetch_metadata(names)).topics.values() if names else ()
    ends = await ends_of_partitions(fan_out, [topic for topic in topics if not topic.error_code])
    rows = []
    for lag in with_lag(page, committed, ends):
        found = members.get(lag.group)
        rows.append(
            GroupRow(lag, None if found is None else len(found.members), None if found is None else found.epoch)
        )
    return GroupList(rows, paging, counted(every, "state"), counted(every, "type"), fan_out.unreachable)


def selected(rows: list[GroupListing], selection: GroupSelection) -> list[GroupListing]:
    """Return the groups that match."""
    text = selection.text.lower()
    return [
        row
        for row in rows
        if text in row.group.lower()
        and selection.state in {ALL, row.state}
        and selection.type.lower() in {ALL, row.type.lower()}
    ]


def counted(rows: list[GroupListing], name: str) -> dict[str, int]:
    """Count the groups by an attribute, in the order of its values."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[getattr(row, name)] = counts.get(getattr(row, name), 0) + 1
    return dict(sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member with the number of its partitions and its lag. A lag is None if it has no committed offset there."""

    member: GroupMember
    partitions: int
    stable_lag: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A group.

    Attributes:
        group: The group with members and partitions.
        members: Its members, by client id: those with the largest lag.
        member_count: Number of all its members.
        partitions: Its partitions: those with the largest lag.
        partition_count: Number of all its partitions.
        stable_lag: Sum of the known lags to the last stable offset. None: none is known.
        lag: Sum of the known lags to the high watermark. None: none is known.
        unassigned: Number of partitions with a committed offset that no member owns.
        unreachable: Reason by node id, for each leader whose offsets are missing.
    """

    group: GroupDescription
    members: list[MemberRow]
    member_count: int
    partitions: list[GroupPartition]
    partition_count: int
    stable_lag: int | None
    lag: int | None
    unassigned: int
    unreachable: dict[int, str]

    @property
    def invisible(self) -> int | None:
        """Records that read_committed consumers cannot read, because open transactions hold them back."""
        return None if self.lag is None or self.stable_lag is None else self.lag - self.stable_lag


async def read_group(cluster: Cluster, group: str) -> GroupPage:
    """Read a group. Raise NotFound if it does not exist. Offsets of leaders that do not respond are None."""
    if not await _may_exist(cluster, group):
        raise NotFound(f"group {group} does not exist", code=ErrorCode.GROUP_ID_NOT_FOUND)
    leaders = FanOut(cluster, tolerant=True)
    return group_page(await describe_group(cluster, group, leaders), leaders.unreachable)


async def _may_exist(cluster: Cluster, group: str) -> bool:
    """Return False if a group certainly does not exist.

    Then the caller sends no FindCoordinator request, which can create `__consumer_offsets`. A user that may not
    describe this topic does not learn whether it exists. For this user, the list of groups decides.
    """
    try:
        return await read_internal_topic(cluster, CONSUMER_OFFSETS) is not None
    except Refused as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
    return any(row.group == group for row in await listed_groups(FanOut(cluster, tolerant=True)))


def group_page(group: GroupDescription, unreachable: dict[int, str]) -> GroupPage:
    """Sum the lags of a group, per member and in total."""
    by_member: dict[str, list[GroupPartition]] = {}
    for row in group.partitions:
        if row.member_id is not None:
            by_member.setdefault(row.member_id, []).append(row)
    members = [
        MemberRow(
            member,
            sum(map(len, member.assignment.values())),
            total(row.stable_lag for row in by_member.get(member.member_id, ())),
            total(row.lag for row in by_member.get(member.member_id, ())),
        )
        for member in group.members
    ]
    if len(members) > MEMBER_ROWS_MAX:
        members = sorted(members, key=lambda row: -(row.lag or 0))[:MEMBER_ROWS_MAX]
    members.sort(key=lambda row: (row.member.client_id, row.member.member_id))
    partitions = group.partitions
    if len(partitions) > PARTITION_ROWS_MAX:
        partitions = sorted(partitions, key=lambda row: -(row.lag or 0))[:PARTITION_ROWS_MAX]
        partitions.sort(key=lambda row: (row.topic, row.partition))
    return GroupPage(
        group,
        members,
        len(group.members),
        partitions,
        len(group.partitions),
        total(row.stable_lag for row in group.partitions),
        total(row.lag for row in group.partitions),
        sum(row.member_id is None for row in group.partitions),
        unreachable,
    )
