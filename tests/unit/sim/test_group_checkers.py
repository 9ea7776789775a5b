"""Checkers of groups against hand-written logs and histories: a correct one, and one per violation."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.sim.checkers import groups
from tests.sim.checkers.batches import read_batches
from tests.sim.checkers.evidence import Evidence, GroupEvidence
from tests.sim.checkers.group_log import GroupModel
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.history import COMMIT, END, HEARTBEAT, INFO, OFFSETS, OK, PRODUCE, SYNC, TXN_COMMIT, History, Operation
from tests.sim.workloads.consumer_protocol import decode_assignment, encode_assignment
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch, encode_marker

TOPIC = "ledger"
INPUT, OUTPUT = (TOPIC, 0), (TOPIC, 1)
TOPIC_ID = bytes(range(16))
COPIERS, READERS = "copy-1", "read-1"
ID = f"{COPIERS}/0"
PID = 7


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def offset_record(group: str, index: int, offset: int | None) -> tuple[bytes, bytes | None]:
    key = struct.pack(">h", 1) + string(group) + string(TOPIC) + struct.pack(">i", index)
    return key, None if offset is None else struct.pack(">hqi", 3, offset, -1) + string("") + struct.pack(">q", 0)


def member_record(member: str, epoch: int, assigned: list[int], revoked: list[int]) -> tuple[bytes, bytes]:
    key = struct.pack(">h", 8) + string(COPIERS) + string(member)
    value = struct.pack(">hiib", 0, epoch, epoch - 1, 0) + owned(assigned) + owned(revoked) + b"\0"
    return key, value


def owned(indexes: list[int]) -> bytes:
    if not indexes:
        return b"\1"
    return b"\2" + TOPIC_ID + bytes([len(indexes) + 1]) + struct.pack(f">{len(indexes)}i", *indexes) + b"\0\0"


def group_record(kind: int, epoch: int | None) -> tuple[bytes, bytes | None]:
    key = struct.pack(">h", kind) + string(COPIERS)
    if epoch is None:
        return key, None
    return key, struct.pack(">h", 0) + (string("consumer") if kind == 2 else b"") + struct.pack(">i", epoch)


@dataclass
class Case:
    """A ledger with originals in partition 0 and copies in partition 1, the group log, and operations of clients."""

    history: History = field(default_factory=History)
    logs: dict[int, bytes] = field(default_factory=lambda: {0: b"", 1: b"", 2: b""})
    """By index: the two partitions of the ledger, and the group log."""
    ends: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0, 2: 0})
    begun_anew: list[tuple[str, int]] = field(default_factory=list)
    final: list[Operation] = field(default_factory=list)

    def write(self, log: int, *records: tuple[bytes | None, bytes | None], pid: int = -1) -> None:
        attributes = TRANSACTIONAL if pid >= 0 else 0
        self.logs[log] += encode_batch(
            list(records),
            timestamp=1,
            producer_id=pid,
            producer_epoch=0,
            attributes=attributes,
            base_offset=self.ends[log],
        )
        self.ends[log] += len(records)

    def mark(self, log: int, *, commit: bool = True) -> None:
        self.logs[log] += encode_marker(
            producer_id=PID,
            producer_epoch=0,
            coordinator_epoch=0,
            commit=commit,
            timestamp=1,
            base_offset=self.ends[log],
        )
        self.ends[log] += 1

    def copy(self, *offsets: int, upto: int, commit: bool = True, offsets_too: bool = True) -> None:
        """Write one transaction of a copier to the logs."""
        self.write(1, *((None, f"{self.ends[1]:08d}<{COPIERS}:0:{offset}>".encode()) for offset in offsets), pid=PID)
        if offsets_too:
            self.write(2, offset_record(COPIERS, 0, upto), pid=PID)
            self.mark(2, commit=commit)
        self.mark(1, commit=commit)

    def op(self, kind: str, *, outcome: str = OK, **details: Any) -> Operation:
        details = {"coordinated": True, **details}
        return self.history.complete(
            self.history.invoke(kind, details.pop("process", "x"), 0.0, **details), outcome, 0.0
        )

    def grant(self, member: str, epoch: int, *indexes: int, kind: str = SYNC, group: str = COPIERS) -> Operation:
        granted = tuple((TOPIC, index) for index in indexes)
        return self.op(kind, group=group, member=member, member_epoch=epoch, granted=granted)

    def findings(self) -> list[str]:
        model = GroupModel.of(read_batches(self.logs[2]))
        group_evidence = GroupEvidence(
            copiers=(COPIERS,),
            places=(INPUT, OUTPUT),
            topic_id=TOPIC_ID,
            committed={place: change.offset for place, change in model.committed.items() if change.offset is not None},
            assignments=model.assignments,
            final=self.final,
            begun_anew=self.begun_anew,
        )
        for change in model.changes:
            group_evidence.changes.setdefault(change.place, []).append(change)
        ledger = {(TOPIC, index): PartitionModel.of(read_batches(self.logs[index])) for index in (0, 1)}
        evidence = Evidence(self.history, ledger, groups=group_evidence)
        return [*model.findings, *(finding for check in groups.CHECKERS for finding in check(evidence))]


def correct_case() -> Case:
    case = Case()
    case.write(0, *((None, b"%08d" % number) for number in range(4)))
    case.grant("m", 1, 0)
    case.copy(0, 1, upto=2)
    case.op(
        TXN_COMMIT, group=COPIERS, member="m", member_epoch=1, offsets=((INPUT, 2),), transactional_id=ID, transaction=1
    )
    case.op(END, commit=True, transactional_id=ID, transaction=1)
    case.op(PRODUCE, transactional_id=ID, transaction=2)
    case.op(OFFSETS, group=COPIERS, partitions=(INPUT,), offsets=((INPUT, 2),))
    case.copy(2, upto=3, commit=False)
    case.copy(2, 3, upto=4)
    case.write(2, offset_record(READERS, 0, 3))
    case.op(COMMIT, group=READERS, member="r", offsets=((INPUT, 3),))
    case.write(2, member_record("m", 4, [0], []), member_record("n", 3, [1], []))
    case.grant("m", 4, 0, kind=HEARTBEAT)
    case.final = [case.op(OFFSETS, group=COPIERS, partitions=(INPUT,), offsets=((INPUT, 4),))]
    return case


def test_correct_case_has_no_findings() -> None:
    assert correct_case().findings() == []


def copied_twice(case: Case) -> None:
    case.copy(3, upto=4)


def skipped(case: Case) -> None:
    case.write(0, (None, b"00000009"), (None, b"00000010"))
    case.copy(5, upto=6)


def without_offset(case: Case) -> None:
    case.write(0, (None, b"00000009"))
    case.copy(4, upto=5, offsets_too=False)


def copy_of_invisible_record(case: Case) -> None:
    case.copy(77, upto=4)


def returned_otherwise(case: Case) -> None:
    case.final.append(case.op(OFFSETS, group=COPIERS, partitions=(INPUT,), offsets=((INPUT, 3),)))


def gone_back(case: Case) -> None:
    case.write(2, offset_record(COPIERS, 0, 2))
    case.write(2, offset_record(COPIERS, 0, 4))


def commit_lost(case: Case) -> None:
    case.op(COMMIT, group=READERS, member="r", offsets=((INPUT, 4),))


def read_back(case: Case) -> None:
    case.op(COMMIT, group=READERS, member="r", offsets=((INPUT, 2),))
    case.write(2, offset_record(READERS, 0, 2))


def complete_and_not_returned(case: Case) -> None:
    case.op(OFFSETS, group=COPIERS, partitions=(INPUT,), offsets=((INPUT, 1),))


def commits_for_partition_of_another(case: Case) -> None:
    case.grant("n", 5, 0)
    case.op(
        TXN_COMMIT, group=COPIERS, member="m", member_epoch=4, offsets=((INPUT, 4),), transactional_id=ID, transaction=9
    )


def two_in_one_epoch(case: Case) -> None:
    case.grant("a", 9, 0, 1)
    case.grant("b", 9, 1)


def assigned_what_is_not_in_the_log(case: Case) -> None:
    case.grant("m", 4, 0, 1, kind=HEARTBEAT)


def two_owners_in_the_log(case: Case) -> None:
    case.write(2, member_record("n", 5, [], [0]))


@pytest.mark.parametrize(
    ("violate", "expected"),
    [
        (copied_twice, "the record at 3 has 2 visible copies"),
        (skipped, "the record at 4 has no visible copy"),
        (without_offset, "the record at 4 has a visible copy, the group's offset is 4"),
        (copy_of_invisible_record, "a visible copy of a record at 77"),
        (returned_otherwise, "OffsetFetch returned 3 for ledger-0, the log has 4"),
        (gone_back, "offset 2 (record"),
        (commit_lost, "I7 lost: read-1 committed 4"),
        (read_back, "offset 2 (record"),
        (complete_and_not_returned, "was returned for"),
        (commits_for_partition_of_another, "I8 copy-1: m of epoch 4 commits"),
        (two_in_one_epoch, "in epoch 9 ('ledger', 1) belongs to a and to b"),
        (assigned_what_is_not_in_the_log, "which is not in the log"),
        (two_owners_in_the_log, "partition 0 belongs to m and to n"),
    ],
)
def test_each_violation_is_reported(violate: Callable[[Case], None], expected: str) -> None:
    case = correct_case()
    violate(case)
    assert any(expected in finding for finding in case.findings()), case.findings()


def test_overlapping_commits_of_a_member_may_take_effect_in_any_order() -> None:
    case = correct_case()
    case.op(COMMIT, group=READERS, member="r", offsets=((OUTPUT, 2),), outcome=INFO)
    case.op(COMMIT, group=READERS, member="r", offsets=((OUTPUT, 4),))
    case.write(2, offset_record(READERS, 1, 4))
    case.write(2, offset_record(READERS, 1, 2))
    assert case.findings() == []


@pytest.mark.parametrize(("instance", "fenced"), [("i", False), ("j", True)])
def test_static_successor_may_have_joined_through_a_deposed_coordinator(instance: str, *, fenced: bool) -> None:
    case = correct_case()
    for member, name, coordinated in (("old", "i", True), ("new", instance, False)):
        response: dict[str, Any] = {
            "group": COPIERS,
            "member": member,
            "instance": name,
            "member_epoch": 9,
            "granted": (INPUT,),
        }
        case.op(SYNC, coordinated=coordinated, **response)
    own: dict[str, Any] = {
        "group": COPIERS,
        "member": "new",
        "instance": instance,
        "member_epoch": 9,
        "offsets": ((INPUT, 5),),
    }
    case.op(TXN_COMMIT, **own, transactional_id=ID, transaction=9)
    assert any(finding.startswith("I8") for finding in case.findings()) == fenced


@pytest.mark.parametrize(("coordinated_at_request", "fenced"), [(True, False), (False, True)])
def test_assignment_by_coordinator_deposed_after_the_request_counts(
    coordinated_at_request: bool, *, fenced: bool
) -> None:
    case = correct_case()
    case.grant("old", 9, 0)
    case.op(
        SYNC,
        group=COPIERS,
        member="new",
        member_epoch=9,
        granted=(INPUT,),
        coordinated=False,
        coordinated_at_request=coordinated_at_request,
    )
    own: dict[str, Any] = {"group": COPIERS, "member": "new", "member_epoch": 9, "offsets": ((INPUT, 5),)}
    case.op(TXN_COMMIT, **own, transactional_id=ID, transaction=9)
    assert any(finding.startswith("I8") for finding in case.findings()) == fenced


@pytest.mark.parametrize(("epoch", "fenced"), [(10, False), (9, True)])
def test_assignment_of_later_epoch_by_deposed_coordinator_counts(epoch: int, *, fenced: bool) -> None:
    case = correct_case()
    for member, member_epoch, coordinated in (("old", 9, True), ("new", epoch, False)):
        case.op(
            SYNC, coordinated=coordinated, group=COPIERS, member=member, member_epoch=member_epoch, granted=(INPUT,)
        )
    own: dict[str, Any] = {"group": COPIERS, "member": "new", "member_epoch": epoch, "offsets": ((INPUT, 5),)}
    case.op(TXN_COMMIT, **own, transactional_id=ID, transaction=9)
    assert any(finding.startswith("I8") for finding in case.findings()) == fenced


def test_empty_group_may_restart_its_epochs() -> None:
    case = correct_case()
    first = case.grant("a", 9, 1)
    case.begun_anew = [(COPIERS, first.completed)]
    case.history.clock += 1
    case.grant("b", 9, 1)
    assert case.findings() == []


def test_group_model_counts_protocol_changes_and_restarted_epochs() -> None:
    case = Case()
    case.write(2, group_record(2, 3))
    case.write(2, group_record(2, None), group_record(3, 3))
    case.write(2, group_record(3, None), group_record(2, 4))
    case.write(2, group_record(2, None), group_record(3, 1))
    model = GroupModel.of(read_batches(case.logs[2]))
    assert (model.counters["group upgraded"], model.counters["group downgraded"]) == (2, 1)
    assert model.begun_anew == {COPIERS: 1}


@pytest.mark.parametrize(("epoch", "restarts"), [(2, {COPIERS: 1}), (3, {})])
def test_first_epoch_of_a_consumer_group_after_a_classic_group_is_a_restart(
    epoch: int, restarts: dict[str, int]
) -> None:
    case = Case()
    case.write(2, group_record(2, 2))
    case.write(2, group_record(2, None), group_record(3, epoch))
    assert GroupModel.of(read_batches(case.logs[2])).begun_anew == restarts


def test_encoded_assignment_is_decoded_unchanged() -> None:
    partitions = ((TOPIC, 0), (TOPIC, 3), ("other", 1))
    assert decode_assignment(encode_assignment(partitions)) == partitions
    assert decode_assignment(b"") == ()
