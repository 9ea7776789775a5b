"""Server-side assignors: each subscribed partition has one owner, the load is balanced, and few partitions move."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.group.assignors.range import assign_range
from odradek.coordinator.group.assignors.spec import GroupSpec, MemberSpec, Target
from odradek.coordinator.group.assignors.uniform import assign_uniform

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPICS = [bytes([number]) * 16 for number in range(5)]

counts = st.lists(st.integers(0, 7), min_size=1, max_size=5).map(lambda sizes: dict(zip(TOPICS, sizes, strict=False)))
names = st.lists(st.sampled_from([f"m{number}" for number in range(9)]), min_size=1, unique=True).map(sorted)


def group(
    subscriptions: Mapping[str, tuple[bytes, ...]],
    partitions: Mapping[bytes, int],
    old: Mapping[str, Target] | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    members = {
        name: MemberSpec(topics, (old or {}).get(name, {}), (instances or {}).get(name))
        for name, topics in sorted(subscriptions.items())
    }
    first = next(iter(members.values()), MemberSpec((), {}))
    same = all(sorted(member.topics) == sorted(first.topics) for member in members.values())
    return GroupSpec(members, partitions, homogeneous=same)


@st.composite
def specs(draw: st.DrawFn, *, same: bool | None = None) -> GroupSpec:
    """Generate a group with disjoint old targets. Some contain partitions and topics that no longer exist."""
    partitions = draw(counts)
    topic_ids = list(partitions)
    topic_lists = st.lists(st.sampled_from(topic_ids), unique=True).map(tuple)
    members = draw(names)
    if draw(st.booleans()) if same is None else same:
        subscription = draw(topic_lists)
        subscriptions = dict.fromkeys(members, subscription)
    else:
        subscriptions = {name: draw(topic_lists) for name in members}
    old: dict[str, dict[bytes, set[int]]] = {name: {} for name in members}
    gone = [(topic_id, number) for topic_id in TOPICS for number in range(9)]
    for topic_id, number in draw(st.lists(st.sampled_from(gone), unique=True, max_size=30)):
        old[draw(st.sampled_from(members))].setdefault(topic_id, set()).add(number)
    frozen = {name: {t: frozenset(numbers) for t, numbers in held.items()} for name, held in old.items()}
    return group(subscriptions, partitions, frozen)


def owned(targets: Mapping[str, Target]) -> dict[tuple[bytes, int], str]:
    owners: dict[tuple[bytes, int], str] = {}
    for name, target in targets.items():
        for topic_id, numbers in target.items():
            assert numbers, "topic without partitions"
            for number in numbers:
                assert owners.setdefault((topic_id, number), name) == name, "two owners"
    return owners


def check_valid(spec: GroupSpec, targets: Mapping[str, Target]) -> None:
    """Assert that exactly the subscribed partitions are assigned, each to one of its subscribers."""
    owners = owned(targets)
    assert targets.keys() == spec.members.keys()
    subscribed = dict.fromkeys(topic_id for member in spec.members.values() for topic_id in member.topics)
    assert owners.keys() == {
        (topic_id, number) for topic_id in subscribed for number in range(spec.partitions[topic_id])
    }
    for (topic_id, _), name in owners.items():
        assert topic_id in spec.members[name].topics


def size(target: Target) -> int:
    return sum(len(numbers) for numbers in target.values())


def rejoined(spec: GroupSpec, targets: Mapping[str, Target]) -> GroupSpec:
    return replace(spec, members={name: replace(spec.members[name], target=targets[name]) for name in spec.members})


@given(spec=specs())
def test_uniform_is_valid(spec: GroupSpec) -> None:
    check_valid(spec, assign_uniform(spec))


@given(spec=specs())
def test_range_is_valid(spec: GroupSpec) -> None:
    check_valid(spec, assign_range(spec))


@given(spec=specs(same=True))
def test_uniform_balances_members_with_equal_subscriptions(spec: GroupSpec) -> None:
    sizes = [size(target) for target in assign_uniform(spec).values()]
    assert max(sizes) - min(sizes) <= 1


@given(spec=specs(same=True))
def test_uniform_moves_only_what_the_balance_requires(spec: GroupSpec) -> None:
    """As many partitions stay as the balance allows, for each choice of the members with one extra partition."""
    targets = assign_uniform(spec)
    topics = next(iter(spec.members.values())).topics
    valid = {
        name: sum(
            number < spec.partitions[topic_id] for topic_id in topics for number in member.target.get(topic_id, ())
        )
        for name, member in spec.members.items()
    }
    share, extra = divmod(sum(spec.partitions[topic_id] for topic_id in topics), len(spec.members))
    may_stay = sum(min(count, share) for count in valid.values()) + min(
        extra, sum(count > share for count in valid.values())
    )
    stayed = sum(
        len(numbers & targets[name].get(topic_id, frozenset()))
        for name, member in spec.members.items()
        for topic_id, numbers in member.target.items()
    )
    assert stayed == may_stay


@given(spec=specs(same=False))
def test_uniform_leaves_no_move_that_improves_the_balance(spec: GroupSpec) -> None:
    """A member with two partitions more than another has no partition that the other one subscribes to."""
    targets = assign_uniform(spec)
    for one, other in combinations(spec.members, 2):
        for full, empty in ((one, other), (other, one)):
            if size(targets[full]) - size(targets[empty]) > 1:
                assert not targets[full].keys() & set(spec.members[empty].topics)


@given(spec=specs())
def test_uniform_without_a_change_returns_the_same_assignment(spec: GroupSpec) -> None:
    targets = assign_uniform(spec)
    assert assign_uniform(rejoined(spec, targets)) == targets


@given(spec=specs(), leaver=st.integers(0, 8))
def test_uniform_after_a_leave_takes_nothing_from_other_members(spec: GroupSpec, leaver: int) -> None:
    """With equal subscriptions, no remaining member loses a partition."""
    targets = assign_uniform(spec)
    names = list(spec.members)
    if not spec.homogeneous or len(names) < 2:
        return
    rejoined_spec = rejoined(spec, targets)
    left = replace(
        rejoined_spec,
        members={name: rejoined_spec.members[name] for name in names if name != names[leaver % len(names)]},
    )
    for name, target in assign_uniform(left).items():
        for topic_id, numbers in targets[name].items():
            assert numbers <= target[topic_id]


@given(spec=specs())
def test_range_depends_only_on_current_members(spec: GroupSpec) -> None:
    """Ranges are in the order of the members, the first ones one partition longer, independent of the old targets."""
    targets = assign_range(spec)
    bare = replace(spec, members={name: replace(member, target={}) for name, member in spec.members.items()})
    assert assign_range(bare) == targets
    for topic_id, count in spec.partitions.items():
        subscribers = [name for name, member in spec.members.items() if topic_id in member.topics]
        runs = [sorted(targets[name].get(topic_id, ())) for name in subscribers]
        if subscribers:
            assert [number for run in runs for number in run] == list(range(count))
            lengths = [len(run) for run in runs]
            assert lengths == sorted(lengths, reverse=True)
            assert lengths[0] - lengths[-1] <= 1


def test_range_sorts_static_members_first() -> None:
    topic = TOPICS[0]
    spec = group(dict.fromkeys("abc", (topic,)), {topic: 4}, instances={"c": "i1", "b": "i2"})
    assert assign_range(spec) == {
        "c": {topic: frozenset({0, 1})},
        "b": {topic: frozenset({2})},
        "a": {topic: frozenset({3})},
    }


def test_groups_without_members_or_topics() -> None:
    assert assign_uniform(group({}, {})) == {}
    assert assign_range(group({}, {})) == {}
    assert assign_uniform(group({"a": ()}, {})) == {"a": {}}


@settings(max_examples=20)
@given(data=st.data())
def test_uniform_terminates_for_large_heterogeneous_groups(data: st.DataObject) -> None:
    topics = [bytes([number]) * 16 for number in range(20)]
    partitions = {topic_id: data.draw(st.integers(1, 40)) for topic_id in topics}
    topic_lists = st.lists(st.sampled_from(topics), unique=True, min_size=1, max_size=6).map(tuple)
    spec = group({f"m{number:02}": data.draw(topic_lists) for number in range(40)}, partitions)
    targets = assign_uniform(spec)
    check_valid(spec, targets)
    assert assign_uniform(rejoined(spec, targets)) == targets
