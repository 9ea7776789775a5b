"""I7 and I8 of groups: copies and offsets agree, assignments are exclusive, and former owners of a partition cannot
commit for it.
"""

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
from tests.sim.options.tenants import BOB_GROUP

OUTPUT: Final = re.compile(rb"^\d{8}<([^:>]+):(\d+):(\d+)>")
"""Value of a copy: `number<group:partition:offset of the copied record>`."""


def check_copied(evidence: Evidence) -> Iterator[str]:
    """I7: each visible original record has one visible copy per group of copiers, if the group's offset is above it.

    Records at or above the group's offset have no visible copy. An original record is one that no copier wrote.
    """
    groups = evidence.groups
    if groups is None:
        return
    inputs, copies = _inputs_and_copies(evidence)
    exposed = exposed_groups(evidence, groups)
    for group in groups.copiers:
        findings = list(_judge_copies(groups, group, inputs, copies))
        if group in exposed:
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
            copied = copies.setdefault((match[1].decode(), topic, int(match[2])), {})
            copied[int(match[3])] = copied.get(int(match[3]), 0) + 1
    return inputs, copies


def _judge_copies(
    groups: GroupEvidence, group: str, inputs: dict[Partition, list[int]], copies: dict[Place, dict[int, int]]
) -> Iterator[str]:
    for topic, index in groups.places:
        group_offset = groups.committed.get((group, topic, index), 0)
        copied = dict(copies.get((group, topic, index), {}))
        where = f"I7 {group}, {topic}-{index}"
        for offset in inputs.get((topic, index), ()):
            times = copied.pop(offset, 0)
            if times > 1:
                yield f"{where}: the record at {offset} has {times} visible copies"
            elif offset < group_offset and not times:
                yield f"{where}: the record at {offset} has no visible copy, the group's offset is {group_offset}"
            elif offset >= group_offset and times:
                yield f"{where}: the record at {offset} has a visible copy, the group's offset is {group_offset}"
        for offset in copied:
            yield f"{where}: there is a visible copy of a record at {offset}, which is not visible"


def exposed_groups(evidence: Evidence, groups: GroupEvidence) -> dict[str, None]:
    """Return the groups with a transaction that a delayed request of the classic protocol may have ended.

    `Evidence.exposed_transactions` describes this gap of the classic protocol.
    """
    exposed = evidence.exposed_transactions()
    affected: dict[str, None] = {}
    for operation in evidence.history.operations:
        group = group_of(operation.transactional_id)
        if group in groups.copiers and (operation.transaction in exposed or operation.producer_id in groups.ended_late):
            affected[group] = None
    return affected


def group_of(transactional_id: str | None) -> str:
    """Return the group of a transactional id of a copier, which begins with the group id."""
    return "" if transactional_id is None else transactional_id.partition("/")[0]


# ---- offsets --------------------------------------------------------------------------------------------------------


def check_final_offsets(evidence: Evidence) -> Iterator[str]:
    """I7, I16: after the faults and after the last restart, OffsetFetch returns the offsets of the log."""
    groups = evidence.groups
    for operation in groups.final if groups is not None else ():
        assert groups is not None
        returned = dict(operation.offsets)
        for topic, index in operation.partitions:
            expected = groups.committed.get((operation.group, topic, index))
            if returned.get((topic, index)) != expected:
                yield (
                    f"I7 {operation.group}: OffsetFetch returned {returned.get((topic, index))} for "
                    f"{topic}-{index}, the log has {expected}"
                )


def check_offsets_monotonic(evidence: Evidence) -> Iterator[str]:
    """I7: committed offsets never decrease.

    Exception: a commit that its member repeated or gave up may take effect after a later commit that overlapped it in
    time, or that the second honest tenant sent after it.
    """
    groups = evidence.groups
    if groups is None:
        return
    commits = _commits_of(evidence)
    exposed = exposed_groups(evidence, groups)
    for place, changes in groups.changes.items():
        if place[0] == groups.alone:
            continue
        before: Committed | None = None
        for change in changes:
            if before is not None and (change.offset is None or change.offset < (before.offset or 0)):
                late = change.producer_id < 0 and (
                    _overlap(commits, place, change.offset, before.offset) or _is_unresolved(evidence, change)
                )
                if late:
                    evidence.count("commits that arrived late")
                elif place[0] in exposed:
                    evidence.count("groups torn by it")
                else:
                    yield (
                        f"I7 {place}: offset {change.offset} (record {change.record}) after {before.offset} "
                        f"(record {before.record})"
                    )
            before = change


def _is_unresolved(evidence: Evidence, change: Committed) -> bool:
    """Return True if `change` is a commit of the second honest tenant that had no response."""
    tenants = evidence.tenants
    return tenants is not None and change.place[0] == BOB_GROUP and change.offset in tenants.unresolved


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
    """Return True if a commit of `low` and a commit of `high` overlapped in time."""
    if low is None or high is None:
        return False
    return any(
        one.invoked < _over(other) and other.invoked < _over(one)
        for one in commits.get((place, low), ())
        for other in commits.get((place, high), ())
    )


def check_commits_kept(evidence: Evidence) -> Iterator[str]:
    """I7: the final offset is at least that of each acknowledged OffsetCommit, unless two commits overlapped."""
    groups = evidence.groups
    if groups is None:
        return
    commits = _commits_of(evidence)
    for (place, offset), operations in commits.items():
        last = groups.committed.get(place)
        if last is not None and last >= offset:
            continue
        for operation in operations:
            if operation.outcome == OK and not _overlap(commits, place, last, offset):
                yield (
                    f"I7 lost: {operation.group} committed {offset} of {place[1:]} (event {operation.invoked}), in "
                    f"force is {last}"
                )
                break


def check_complete_transactions(evidence: Evidence) -> Iterator[str]:
    """I7: OffsetFetch returns the offsets of a transaction once a later request has shown that it is complete.

    A later successful request with the same transactional id shows that.
    """
    groups = evidence.groups
    if groups is None:
        return
    exposed = exposed_groups(evidence, groups)
    fetches: dict[str, list[Operation]] = {}
    for operation in evidence.history.of(OFFSETS):
        if operation.outcome == OK and operation.coordinated:
            fetches.setdefault(operation.group, []).append(operation)
    by_id: dict[str, list[Operation]] = {}
    for operation in evidence.history.of(INIT, ADD, PRODUCE, END, TXN_COMMIT):
        if operation.outcome == OK and group_of(operation.transactional_id) in groups.copiers:
            by_id.setdefault(operation.transactional_id or "", []).append(operation)
    for operations in by_id.values():
        for commit, known in _commits_known_complete(operations):
            if commit.group in exposed:
                continue
            for fetch in fetches.get(commit.group, ()):
                returned = dict(fetch.offsets)
                for place, offset in commit.offsets:
                    if fetch.invoked > known and place in fetch.partitions and returned.get(place, -1) < offset:
                        yield (
                            f"I7 {commit.group}: {returned.get(place)} was returned for {place} "
                            f"(event {fetch.invoked}) "
                            "after the transaction "
                            f"that committed {offset} was complete (event {known})"
                        )


def _commits_known_complete(operations: list[Operation]) -> Iterator[tuple[Operation, int]]:
    """Yield (commit of offsets, event after which its transaction is known to be complete) for one transactional id."""
    offsets: list[Operation] = []
    ended = -1
    for operation in sorted(operations, key=lambda ended: ended.completed):
        if operation.kind == END:
            if operation.commit and offsets and operation.transaction == offsets[-1].transaction:
                ended = operation.completed
            else:
                offsets, ended = [], -1
        elif ended >= 0 and operation.invoked > ended:
            yield from ((offset_commit, operation.completed) for offset_commit in offsets)
            offsets, ended = [], -1
        elif operation.kind == INIT:
            offsets, ended = [], -1
        if operation.kind == TXN_COMMIT and ended < 0:
            if offsets and offsets[-1].transaction != operation.transaction:
                offsets = []
            offsets.append(operation)


# ---- members --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Grants:
    """Assignments of partitions to members of one group, by partition."""

    by_place: dict[Partition, list[Operation]] = field(default_factory=dict)

    def add(self, operation: Operation) -> None:
        for place in operation.granted or ():
            self.by_place.setdefault(place, []).append(operation)


def check_members_fenced(evidence: Evidence) -> Iterator[str]:
    """I8 of groups: only the member that was assigned a partition last may commit offsets for it.

    Responses of a deposed coordinator are treated as follows:
    - They take no partition from another member.
    - If the broker was still the coordinator when it received the request, they count: it knew all earlier assignments.
    - An assignment of a later member epoch counts against assignments of earlier epochs: a coordinator announces an
      epoch only after it is in the log.
    - A static member with the same instance id and generation succeeds its predecessor by its JoinGroup. The
      coordinator that then returns its assignment may have been deposed since.
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
            current = grants[operation.group].by_place.get(place, [])
            deposed_assignments = deposed.get(operation.group, _Grants()).by_place.get(place, [])
            succeeded = max(
                (grant.completed for grant in deposed_assignments if grant.member == operation.member), default=-1
            )
            assigned_at = max(
                (grant.completed for grant in current if _is_assigned_to(grant, operation, succeeded)), default=-1
            )
            requested_at = max(
                (
                    grant.invoked
                    for grant in deposed_assignments
                    if grant.member == operation.member and grant.coordinated_at_request
                ),
                default=-1,
            )
            for other in current:
                if (
                    other.member == operation.member
                    or assigned_at >= other.invoked
                    or other.completed >= operation.invoked
                ):
                    continue
                later = any(
                    grant.member == operation.member
                    and grant.member_epoch == operation.member_epoch > other.member_epoch
                    for grant in deposed_assignments
                )
                if requested_at <= other.completed and not later:
                    yield (
                        f"I8 {operation.group}: {operation.member} of epoch {operation.member_epoch} "
                        f"commits for {place} (event {operation.invoked}) "
                        f"after {other.member} of epoch {other.member_epoch} was assigned it (event {other.completed})"
                    )
                    break


def _is_assigned_to(grant: Operation, commit: Operation, succeeded: int) -> bool:
    """Return True if `grant` assigned to the committing member, or to its predecessor before event `succeeded`."""
    if grant.member == commit.member:
        return True
    same = grant.instance and (grant.instance, grant.member_epoch) == (commit.instance, commit.member_epoch)
    return bool(same) and grant.invoked < succeeded


def check_one_owner(evidence: Evidence) -> Iterator[str]:
    """I7: within one generation or member epoch, a partition is assigned to one member."""
    owners: dict[tuple[str, int, Partition], Operation] = {}
    epochs_restarted = evidence.groups.begun_anew if evidence.groups is not None else ()
    for operation in evidence.history.of(SYNC, HEARTBEAT):
        if operation.outcome != OK or not operation.coordinated:
            continue
        for place in operation.granted or ():
            key = (operation.group, operation.member_epoch, place)
            other = owners.setdefault(key, operation)
            restarted = any(
                group == operation.group and other.invoked < position < operation.completed
                for group, position in epochs_restarted
            )
            if _member_key(other) != _member_key(operation) and not restarted:
                yield (
                    f"I7 {operation.group}: in epoch {operation.member_epoch} {place} belongs to "
                    f"{_member_key(other)} and to {_member_key(operation)}"
                )
            owners[key] = operation


def _member_key(operation: Operation) -> str:
    return operation.instance or operation.member


def check_assignments_in_log(evidence: Evidence) -> Iterator[str]:
    """I7: an assignment in a heartbeat response is in the log for that member epoch."""
    groups = evidence.groups
    if groups is None:
        return
    for operation in evidence.history.of(HEARTBEAT):
        if operation.outcome != OK or operation.granted is None:
            continue
        assignment = frozenset((groups.topic_id, index) for _, index in operation.granted)
        assignments = groups.assignments.get((operation.group, operation.member, operation.member_epoch), {})
        if assignment not in assignments:
            yield (
                f"I7 {operation.group}: {operation.member} was assigned {operation.granted} in epoch "
                f"{operation.member_epoch}, which is not in the log"
            )


CHECKERS: Final = (
    check_copied,
    check_final_offsets,
    check_offsets_monotonic,
    check_commits_kept,
    check_complete_transactions,
    check_members_fenced,
    check_one_owner,
    check_assignments_in_log,
)
