"""A page of a group with more members and topics than it shows."""

from __future__ import annotations

from odradek.client import GroupDescription, GroupMember, GroupPartition
from odradek.console.model.groups import MEMBER_ROWS_MAX, group_page
from odradek.console.model.parts import Part
from odradek.console.web.render import ENVIRONMENT

TOPICS = 30


def member(number: int) -> GroupMember:
    assignment = {f"t{topic}": [number] for topic in range(TOPICS)}
    return GroupMember(f"m{number}", None, f"client-{number:04}", "/127.0.0.1", 1, assignment)


def partition(number: int) -> GroupPartition:
    lag = number
    return GroupPartition("t0", number, 0, lag, lag, lag, lag, None, f"m{number}", None, None)


def test_page_shows_the_members_with_the_largest_lag_and_counts_all() -> None:
    numbers = range(MEMBER_ROWS_MAX + 5)
    group = GroupDescription(
        "g", "consumer", "Stable", 1, "uniform", [member(number) for number in numbers], [*map(partition, numbers)]
    )
    page = group_page(group, {})
    assert (page.member_count, len(page.members)) == (MEMBER_ROWS_MAX + 5, MEMBER_ROWS_MAX)
    assert page.members[0].member.client_id == "client-0005"
    assert page.lag == sum(numbers)
    text = ENVIRONMENT.get_template("group.html").render(
        frame="fragment.html", name="g", found=Part(page), changes=[], is_observed=False, since_ms=None
    )
    assert "<dt>Members</dt><dd>1,005</dd>" in text
    assert "1,005 members; those with the largest lag are shown." in text
    assert text.count("and 10 more topics") == MEMBER_ROWS_MAX
