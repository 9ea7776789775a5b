"""Where a group starts to read again, by the specifications of kafka-consumer-groups.

A plan is a row a partition: what is committed, what would be. It is carried out only when that is asked for.
"""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.client import groups
from odradek.client import topics as topic_admin
from odradek.client.client import GROUP_KEY, Cluster, Failed, Unaskable, check
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from odradek.client.groups import Committed

    Partition = tuple[str, int]
    Plan = dict[Partition, int]

INACTIVE = frozenset({"Empty", "Dead"})
SPECIFICATIONS = (
    "to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration", "from-file",
)  # fmt: skip
DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
"""ISO 8601 without years and months, whose lengths differ; as Java's Duration, and weeks."""
FILE_COLUMNS = 3


def reset(
    cluster: Cluster, group: str, scope: Sequence[str] | None, specification: str, value: str | None, *, execute: bool
) -> dict[str, Any]:
    """The plan, carried out with `execute`. `scope` names topics, or topic:partition,partition; None: all that are committed.

    Raises:
        Failed: the group has members, or something that is named does not exist.
    """
    found = groups.modern(cluster, group) or groups.classic(cluster, group)
    if found is not None and found["state"] not in INACTIVE:
        raise Failed(
            f"offsets can only be reset while nobody is in the group, and {group} is {found['state']}; "
            "stop its consumers first"
        )
    committed = groups.committed_offsets(cluster, group)
    if specification == "from-file":
        plan = within(cluster, from_file(value or ""))
    else:
        wanted = partitions_of(cluster, scope, committed)
        plan = planned(cluster, specification, value, wanted, committed)
    if execute:
        commit(cluster, group, plan)
    return {
        "group": group,
        "executed": execute,
        "partitions": [
            {
                "topic": topic,
                "partition": partition,
                "committed": committed.get((topic, partition), (None,))[0],
                "new": new,
            }
            for (topic, partition), new in sorted(plan.items())
        ],
    }


def partitions_of(cluster: Cluster, scope: Sequence[str] | None, committed: Committed) -> list[Partition]:
    if scope is None:
        if not committed:
            raise Failed("the group has committed nothing, so there are no topics to reset; name them with --topic")
        return sorted(committed)
    found: dict[Partition, None] = {}
    for each in scope:
        name, _, indexes = each.partition(":")
        [topic] = topic_admin.named(cluster, [name])
        there = sorted(partition.partition_index for partition in topic.partitions)
        for index in there if not indexes else [number(text, "partition") for text in indexes.split(",")]:
            if index not in there:
                raise Failed(f"topic {name} has no partition {index}; it has {there[0]} to {there[-1]}")
            found[name, index] = None
    return sorted(found)


def planned(
    cluster: Cluster, specification: str, value: str | None, wanted: Sequence[Partition], committed: Committed
) -> Plan:
    topics = topic_admin.named(cluster, sorted({topic for topic, _ in wanted}))

    def offsets(timestamp: int) -> topic_admin.Offsets:
        return topic_admin.offsets(cluster, topics, timestamp, topic_admin.READ_UNCOMMITTED)

    first, last = offsets(topic_admin.EARLIEST), offsets(topic_admin.LATEST)
    if missing := [key for key in wanted if key not in first or key not in last]:
        raise Failed(f"{name_of(missing[0])} has no leader that answers; see: odradek topics describe {missing[0][0]}")

    def bounded(choose: Callable[[Partition], int]) -> Plan:
        return {key: min(max(choose(key), first[key]), last[key]) for key in wanted}

    match specification:
        case "to-earliest":
            return {key: first[key] for key in wanted}
        case "to-latest":
            return {key: last[key] for key in wanted}
        case "to-current":  # where nothing is committed: the end, as in Kafka
            return bounded(lambda key: committed.get(key, (last[key], ""))[0])
        case "to-offset":
            offset = number(value, "--to-offset")
            return bounded(lambda _: offset)
        case "shift-by":
            by = number(value, "--shift-by")
            if uncommitted := [key for key in wanted if key not in committed]:
                raise Failed(f"cannot shift {name_of(uncommitted[0])}: the group has committed nothing there")
            return bounded(lambda key: committed[key][0] + by)
        case _:
            at = offsets(moment_ms(specification, value))
            return {key: last[key] if at.get(key, -1) < 0 else at[key] for key in wanted}


def moment_ms(specification: str, value: str | None) -> int:
    """The time that --to-datetime names, or that lies --by-duration before now. Raises Unaskable."""
    text = value or ""
    if specification == "by-duration":
        matched = DURATION.fullmatch(text)
        if matched is None or not any(matched.groups()):
            raise Unaskable(f"--by-duration {text}: expected a duration such as PT1H30M or P2D")
        weeks, days, hours, minutes, seconds = (float(part or 0) for part in matched.groups())
        try:
            ago = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
            return int((datetime.now(UTC) - ago).timestamp() * 1000)
        except OverflowError as error:
            raise Unaskable(f"--by-duration {text}: there was no time so long ago") from error
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise Unaskable(f"--to-datetime {text}: expected a time such as 2026-11-21T17:42:00.000") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def from_file(path: str) -> Plan:
    """Lines of topic,partition,offset, as kafka-consumer-groups --export writes them. Raises Unaskable."""
    plan: Plan = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            for place, row in enumerate(csv.reader(lines), 1):
                if not row:
                    continue
                if len(row) != FILE_COLUMNS:
                    raise Unaskable(f"{path}, line {place}: expected topic,partition,offset")
                plan[row[0].strip(), number(row[1], f"{path}, line {place}")] = number(row[2], f"{path}, line {place}")
    except OSError as error:
        raise Unaskable(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unaskable(f"{path}: {error}") from error
    return plan


def within(cluster: Cluster, plan: Plan) -> Plan:
    """The same, with offsets that the logs have."""
    topics = topic_admin.named(cluster, sorted({topic for topic, _ in plan}))
    first = topic_admin.offsets(cluster, topics, topic_admin.EARLIEST, topic_admin.READ_UNCOMMITTED)
    last = topic_admin.offsets(cluster, topics, topic_admin.LATEST, topic_admin.READ_UNCOMMITTED)
    if missing := [key for key in plan if key not in first or key not in last]:
        raise Failed(f"{name_of(missing[0])} does not exist, or has no leader")
    return {key: min(max(offset, first[key]), last[key]) for key, offset in plan.items()}


def commit(cluster: Cluster, group: str, plan: Plan) -> None:
    """As nobody's member, which a group without members takes. Raises Failed."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in sorted(plan.items()):
        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics.setdefault(topic, []).append(row)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    answer = cluster.ask_coordinator(group, GROUP_KEY, request, worst, version_max=groups.NAMES_UP_TO)
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise Failed(f"somebody has joined group {group} meanwhile; stop its consumers first")
            check(each.error_code, f"{topic.name}-{each.partition_index} was not reset")


def worst(answer: Any) -> int:
    codes: Iterable[int] = (each.error_code for topic in answer.topics for each in topic.partitions)
    return next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)


def name_of(key: Partition) -> str:
    return f"{key[0]}-{key[1]}"


def number(text: str | None, what: str) -> int:
    try:
        return int(text or "")
    except ValueError as error:
        raise Unaskable(f"{what} {text}: expected a number") from error
