"""I7: what groups have read, what they have written for it, and the offsets that say so; who may commit, and who is told what is whose."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.sim.checkers.evidence import Evidence, GroupEvidence
from tests.sim.checkers.group_log import Committed, Place
from tests.sim.checkers.visibility import COMMITTED, PLAIN
from tests.sim.history import (
    ADD,
    COMMIT,
    END,
    HEARTBEAT,
    INFO,
    INIT,
    NEVER,
    OFFSETS,
    OK,
    PRODUCE,
    SYNC,
    TXN_COMMIT,
    Operation,
    Partition,
)

OUTPUT: Final = re.compile(rb"^\d{8}<([^:>]+):(\d+):(\d+)>")
"""number<group:partition:offset of the record that it was made from>"""


def check_copied(evidence: Evidence) -> Iterator[str]:
    """I7: each visible record that no copier wrote has exactly one visible copy by each group of copiers, and the group's offsets say which
    records have one: those below them, and no others.
    """
    found = evidence.groups
    if found is None:
        return
    inputs, copies = _inputs_and_copies(evidence)
    excused = exposed_groups(evidence, found)
    for group in found.copiers:
        findings = list(_judge_copies(found, group, inputs, copies))
        if group in excused:
            evidence.count("groups exposed to a late EndTxn or marker of the classic protocol")
            evidence.count("groups torn by it", 1 if findings else 0)
        else:
            yield from findings


def _inputs_and_copies(evidence: Evidence) -> tuple[dict[Partition, list[int]], dict[Place, dict[int, int]]]:
    inputs: dict[Partition, list[int]] = {}
    copies: dict[Place, dict[int, int]] = {}
    for (topic, index), model in evidence.partitions.items():
        for slot in model.slots.values():
            if slot.status not in {COMMITTED, PLAIN}:
                continue
            match = OUTPUT.match(slot.value)
            if match is None:
                inputs.setdefault((topic, index), []).append(slot.offset)
                continue
            made = copies.setdefault((match[1].decode(), topic, int(match[2])), {})
            made[int(match[3])] = made.get(int(match[3]), 0) + 1
    return inputs, copies


def _judge_copies(
    found: GroupEvidence, group: str, inputs: dict[Partition, list[int]], copies: dict[Place, dict[int, int]]
) -> Iterator[str]:
    for topic, index in found.places:
        at = found.committed.get((group, topic, index), 0)
        made = dict(copies.get((group, topic, index), {}))
        where = f"I7 {group}, {topic}-{index}"
        for offset in inputs.get((topic, index), ()):
            times = made.pop(offset, 0)
            if times > 1:
                yield f"{where}: the record at {offset} has {times} visible copies"
            elif offset < at and not times:
                yield f"{where}: the record at {offset} has no visible copy, the group's offset is {at}"
            elif offset >= at and times:
                yield f"{where}: the record at {offset} has a visible copy, the group's offset is {at}"
        for offset in made:
            yield f"{where}: there is a visible copy of a record at {offset}, which is not visible"


def exposed_groups(evidence: Evidence, found: GroupEvidence) -> dict[str, None]:
    """Groups with a transaction that fell into the hole of the classic protocol: see `Evidence.exposed_transactions`."""
    exposed = evidence.exposed_transactions()
    groups: dict[str, None] = {}
    for operation in evidence.history.operations:
        group = group_of(operation.transactional_id)
        if group in found.copiers and (operation.transaction in exposed or operation.producer_id in found.ended_late):
            groups[group] = None
    return groups


def group_of(transactional_id: str | None) -> str:
    """Copiers name their ids after their groups."""
    return "" if transactional_id is None else transactional_id.partition("/")[0]


# -- offsets


def check_told_at_rest(evidence: Evidence) -> Iterator[str]:
    """I7, I16: at rest, and after the last restart, the coordinator says of every offset what its log says."""
    found = evidence.groups
    for operation in found.final if found is not None else ():
        assert found is not None
        told = dict(operation.offsets)
        for topic, index in operation.partitions:
            expected = found.committed.get((operation.group, topic, index))
            if told.get((topic, index)) != expected:
                yield f"I7 {operation.group}: the coordinator says {told.get((topic, index))} of {topic}-{index}, its log says {expected}"


def check_never_back(evidence: Evidence) -> Iterator[str]:
    """I7: offsets do not go back, but for a commit that its member sent again, or gave up, while the later one was on its way."""
    found = evidence.groups
    if found is None:
        return
    commits = _commits_of(evidence)
    excused = exposed_groups(evidence, found)
    for place, changes in found.changes.items():
        if place[0] == found.alone:
            continue
        before: Committed | None = None
        for change in changes:
            if before is not None and (change.offset is None or change.offset < (before.offset or 0)):
                late = change.producer_id < 0 and _overlap(commits, place, change.offset, before.offset)
                if late:
                    evidence.count("commits that arrived late")
                elif place[0] in excused:
                    evidence.count("groups torn by it")
                else:
                    yield f"I7 {place}: offset {change.offset} (record {change.record}) after {before.offset} (record {before.record})"
            before = change


Commits = dict[tuple[Place, int], list[Operation]]


def _commits_of(evidence: Evidence) -> Commits:
    commits: Commits = {}
    for operation in evidence.history.of(COMMIT):
        for (topic, index), offset in operation.offsets:
            commits.setdefault(((operation.group, topic, index), offset), []).append(operation)
    return commits


def _over(operation: Operation) -> int:
    return NEVER if operation.outcome == INFO else operation.completed


def _overlap(commits: Commits, place: Place, low: int | None, high: int | None) -> bool:
    """Whether a commit of the one was on its way together with one of the other."""
    if low is None or high is None:
        return False
    return any(
        one.invoked < _over(other) and other.invoked < _over(one)
        for one in commits.get((place, low), ())
        for other in commits.get((place, high), ())
    )


def check_commits_kept(evidence: Evidence) -> Iterator[str]:
    """I7: an acknowledged OffsetCommit is in force in the end, or one that is not older."""
    found = evidence.groups
    if found is None:
        return
    commits = _commits_of(evidence)
    for (place, offset), operations in commits.items():
        last = found.committed.get(place)
        if last is not None and last >= offset:
            continue
        for operation in operations:
            if operation.outcome == OK and not _overlap(commits, place, last, offset):
                yield f"I7 lost: {operation.group} committed {offset} of {place[1:]} (event {operation.invoked}), in force is {last}"
                break


def check_settled(evidence: Evidence) -> Iterator[str]:
    """I7: once a transaction is known to be complete, its offsets are told: whoever writes in the next one knows it."""
    found = evidence.groups
    if found is None:
        return
    excused = exposed_groups(evidence, found)
    fetches: dict[str, list[Operation]] = {}
    for operation in evidence.history.of(OFFSETS):
        if operation.outcome == OK and operation.coordinated:
            fetches.setdefault(operation.group, []).append(operation)
    by_id: dict[str, list[Operation]] = {}
    for operation in evidence.history.of(INIT, ADD, PRODUCE, END, TXN_COMMIT):
        if operation.outcome == OK and group_of(operation.transactional_id) in found.copiers:
            by_id.setdefault(operation.transactional_id or "", []).append(operation)
    for operations in by_id.values():
        for settled, known in _settled(operations):
            if settled.group in excused:
                continue
            for fetch in fetches.get(settled.group, ()):
                told = dict(fetch.offsets)
                for place, offset in settled.offsets:
                    if fetch.invoked > known and place in fetch.partitions and told.get(place, -1) < offset:
                        yield (
                            f"I7 {settled.group}: {told.get(place)} of {place} was told (event {fetch.invoked}) after the transaction "
                            f"that committed {offset} was complete (event {known})"
                        )


def _settled(operations: list[Operation]) -> Iterator[tuple[Operation, int]]:
    """(commit of offsets, event after which its transaction was known to be complete) of one transactional id."""
    offsets: list[Operation] = []
    ended = -1
    for operation in sorted(operations, key=lambda each: each.completed):
        if operation.kind == END:
            if operation.commit and offsets and operation.transaction == offsets[-1].transaction:
                ended = operation.completed
            else:
                offsets, ended = [], -1
        elif ended >= 0 and operation.invoked > ended:
            yield from ((each, operation.completed) for each in offsets)
            offsets, ended = [], -1
        elif operation.kind == INIT:
            offsets, ended = [], -1
        if operation.kind == TXN_COMMIT and ended < 0:
            if offsets and offsets[-1].transaction != operation.transaction:
                offsets = []
            offsets.append(operation)


# -- members


@dataclass(slots=True)
class _Grants:
    """Of one group, who was told that a partition is his."""

    by_place: dict[Partition, list[Operation]] = field(default_factory=dict)

    def add(self, operation: Operation) -> None:
        for place in operation.granted or ():
            self.by_place.setdefault(place, []).append(operation)


def check_members_fenced(evidence: Evidence) -> Iterator[str]:
    """I8 of groups: who has been told that a partition is his is the only one who may commit for it, until somebody else is told so.

    The word of a coordinator that was deposed takes nothing from anybody. It counts for whom it was told when it was still the coordinator as
    he asked, for it knew then of all that others had been told before, and for the epoch that it told him of, against those of earlier ones:
    nobody is told of an epoch before it is in the log. And a successor under the same instance id, in the same generation,
    is what he is by his JoinGroup: the coordinator that then tells him his assignment may have been deposed since.
    """
    alone = evidence.groups.alone if evidence.groups is not None else ""
    grants: dict[str, _Grants] = {}
    deposed: dict[str, _Grants] = {}
    for operation in evidence.history.of(SYNC, HEARTBEAT):
        if operation.outcome == OK and operation.granted is not None:
            (grants if operation.coordinated else deposed).setdefault(operation.group, _Grants()).add(operation)
    for operation in evidence.history.of(COMMIT, TXN_COMMIT):
        if operation.outcome != OK or operation.group not in grants or operation.group == alone:
            continue
        for place, _ in operation.offsets:
            told = grants[operation.group].by_place.get(place, [])
            heard = deposed.get(operation.group, _Grants()).by_place.get(place, [])
            succeeded = max((each.completed for each in heard if each.member == operation.member), default=-1)
            mine = max((each.completed for each in told if _his(each, operation, succeeded)), default=-1)
            asked = max(
                (each.invoked for each in heard if each.member == operation.member and each.asked_coordinator),
                default=-1,
            )
            for other in told:
                if other.member == operation.member or mine >= other.invoked or other.completed >= operation.invoked:
                    continue
                later = any(
                    each.member == operation.member and each.member_epoch == operation.member_epoch > other.member_epoch
                    for each in heard
                )
                if asked <= other.completed and not later:
                    yield (
                        f"I8 {operation.group}: {operation.member} of epoch {operation.member_epoch} commits for {place} (event {operation.invoked}) "
                        f"after {other.member} of epoch {other.member_epoch} was told that it is his (event {other.completed})"
                    )
                    break


def _his(grant: Operation, commit: Operation, succeeded: int) -> bool:
    """Was it told to who commits, or to the one whom he had succeeded by the event `succeeded`?"""
    if grant.member == commit.member:
        return True
    same = grant.instance and (grant.instance, grant.member_epoch) == (commit.instance, commit.member_epoch)
    return bool(same) and grant.invoked < succeeded


def check_one_owner(evidence: Evidence) -> Iterator[str]:
    """I7: in one generation, or one epoch, a partition is one member's."""
    owners: dict[tuple[str, int, Partition], Operation] = {}
    anew = evidence.groups.begun_anew if evidence.groups is not None else ()
    for operation in evidence.history.of(SYNC, HEARTBEAT):
        if operation.outcome != OK or not operation.coordinated:
            continue
        for place in operation.granted or ():
            key = (operation.group, operation.member_epoch, place)
            other = owners.setdefault(key, operation)
            counts_anew = any(
                group == operation.group and other.invoked < at < operation.completed for group, at in anew
            )
            if _who(other) != _who(operation) and not counts_anew:
                yield f"I7 {operation.group}: in epoch {operation.member_epoch} {place} belongs to {_who(other)} and to {_who(operation)}"
            owners[key] = operation


def _who(operation: Operation) -> str:
    return operation.instance or operation.member


def check_told_as_written(evidence: Evidence) -> Iterator[str]:
    """I7: what a member of the consumer protocol is told to be its own in an epoch stands in the log for that epoch."""
    found = evidence.groups
    if found is None:
        return
    for operation in evidence.history.of(HEARTBEAT):
        if operation.outcome != OK or operation.granted is None:
            continue
        told = frozenset((found.topic_id, index) for _, index in operation.granted)
        said = found.said.get((operation.group, operation.member, operation.member_epoch), {})
        if told not in said:
            yield f"I7 {operation.group}: {operation.member} was told {operation.granted} in epoch {operation.member_epoch}, which is not in the log"


CHECKERS: Final = (
    check_copied,
    check_told_at_rest,
    check_never_back,
    check_commits_kept,
    check_settled,
    check_members_fenced,
    check_one_owner,
    check_told_as_written,
)
