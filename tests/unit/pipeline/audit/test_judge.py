"""Judgment of the decisions of one transactional id."""

from __future__ import annotations

import pytest

from odradek.pipeline.audit.alignment import Fit
from odradek.pipeline.audit.judgment import Judgment, Kind, Status
from odradek.protocol.txn_state import TxnState
from tests.support.audit_logs import ID, PRODUCER_ID, AuditLogs


def statuses(judgment: Judgment) -> list[Status]:
    return [each.status for each in judgment.decisions]


def named(judgment: Judgment) -> list[tuple[Kind, int, int, int]]:
    """Return kind, epoch, partition and offset of each violation, and check the names that all have in common."""
    for violation in judgment.violations:
        assert (violation.transactional_id, violation.producer_id) == (ID, PRODUCER_ID)
    return [(each.kind, each.producer_epoch, each.partition, each.offset) for each in judgment.violations]


@pytest.mark.parametrize("version", [0, 2])
def test_decisions_with_all_markers_are_proven(version: int) -> None:
    logs = AuditLogs()
    logs.transaction(0, 0, 1, version=version)
    logs.transaction(1 if version else 0, 1, commit=False, version=version)
    judgment = logs.judged()
    assert statuses(judgment) == [Status.PROVEN, Status.PROVEN]
    assert judgment.violations == []
    assert [marker.fit for marker in judgment.markers] == [Fit.MATCH] * 3
    assert judgment.open_data == []


def test_abort_without_partitions_proves_nothing() -> None:
    logs = AuditLogs()
    logs.state(TxnState.EMPTY, 0)
    logs.state(TxnState.PREPARE_ABORT, 1)
    logs.state(TxnState.COMPLETE_ABORT, 1)
    assert statuses(logs.judged()) == [Status.EMPTY]


@pytest.mark.parametrize("version", [0, 2])
def test_missing_marker_is_named(version: int) -> None:
    logs = AuditLogs()
    logs.transaction(0, 0, version=version)
    epoch = 1 if version else 0
    logs.state(TxnState.ONGOING, epoch, 0, 1, version=version)
    offset = logs.data(0, epoch)
    logs.data(1, epoch)
    end = epoch + 1 if version else epoch
    logs.state(TxnState.PREPARE_COMMIT, end, 0, 1, version=version)
    logs.marker(1, end)
    logs.state(TxnState.COMPLETE_COMMIT, end, version=version)
    judgment = logs.judged()
    assert statuses(judgment) == [Status.PROVEN, Status.VIOLATED]
    assert named(judgment) == [(Kind.MISSING_MARKER, end, 0, offset)]
    assert [(data.data.first_offset, data.state) for data in judgment.open_data] == [(offset, "hanging")]


def test_missing_marker_among_classic_commits_is_named_by_time() -> None:
    logs = AuditLogs()
    for number in range(20):
        logs.state(TxnState.ONGOING, 5, 0, version=0)
        offset = logs.data(0, 5)
        logs.state(TxnState.PREPARE_COMMIT, 5, 0, version=0)
        if number == 7:
            missing = offset
        else:
            logs.marker(0, 5)
        logs.state(TxnState.COMPLETE_COMMIT, 5, version=0)
    judgment = logs.judged()
    assert [index for index, status in enumerate(statuses(judgment)) if status is not Status.PROVEN] == [7]
    # The data of the next transaction follows without a marker between, so both are one interval of the log.
    assert named(judgment) == [(Kind.MISSING_MARKER, 5, 0, missing + 1)]


def test_marker_of_the_wrong_kind_is_named() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    offset = logs.marker(0, 1, commit=False)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    assert named(logs.judged()) == [(Kind.WRONG_KIND, 1, 0, offset)]


def test_marker_with_the_wrong_epoch_is_named() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    offset = logs.marker(0, 9)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    judgment = logs.judged()
    assert named(judgment) == [(Kind.WRONG_EPOCH, 9, 0, offset)]
    assert statuses(judgment) == [Status.VIOLATED]


@pytest.mark.parametrize("commit", [False, True])
def test_marker_without_a_decision_is_named(commit: bool) -> None:
    logs = AuditLogs()
    logs.transaction(0, 0)
    offset = logs.marker(0, 7, commit=commit)
    assert named(logs.judged()) == [(Kind.NO_DECISION, 7, 0, offset)]


def test_commit_marker_within_a_transaction_is_named() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 4, 0, version=0)
    logs.data(0, 4)
    offset = logs.marker(0, 4)
    logs.data(0, 4)
    logs.state(TxnState.PREPARE_COMMIT, 4, 0, version=0)
    logs.marker(0, 4)
    logs.state(TxnState.COMPLETE_COMMIT, 4, version=0)
    assert named(logs.judged()) == [(Kind.NO_DECISION, 4, 0, offset)]


def test_abort_of_a_hanging_transaction_is_listed_as_that_of_an_operator() -> None:
    logs = AuditLogs()
    logs.transaction(0, 0, version=0)
    logs.data(0, 0)
    logs.marker(0, 0, commit=False)
    judgment = logs.judged()
    assert judgment.violations == []
    assert [marker.fit for marker in judgment.markers] == [Fit.MATCH, Fit.BY_OPERATOR]


def test_abort_of_an_operator_before_the_coordinator_aborts_is_listed_as_that_of_an_operator() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    logs.marker(0, 0, commit=False)
    logs.state(TxnState.PREPARE_ABORT, 1, 0)
    logs.marker(0, 1, commit=False)
    logs.state(TxnState.COMPLETE_ABORT, 1)
    judgment = logs.judged()
    assert (statuses(judgment), judgment.violations) == ([Status.PROVEN], [])
    assert [marker.fit for marker in judgment.markers] == [Fit.BY_OPERATOR, Fit.MATCH]


def test_abort_marker_within_a_committed_transaction_is_a_violation() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0, version=0)
    logs.data(0, 0)
    offset = logs.marker(0, 0, commit=False)
    logs.state(TxnState.PREPARE_COMMIT, 0, 0, version=0)
    logs.marker(0, 0)
    logs.state(TxnState.COMPLETE_COMMIT, 0, version=0)
    assert named(logs.judged()) == [(Kind.NO_DECISION, 0, 0, offset)]


@pytest.mark.parametrize("aborts", [1, 2])
def test_abort_marker_between_the_data_of_a_committed_transaction_is_a_violation(aborts: int) -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 5, 0)
    offsets = []
    for _ in range(aborts):
        logs.data(0, 5)
        offsets.append(logs.marker(0, 5, commit=False))
    logs.data(0, 5)
    logs.state(TxnState.PREPARE_COMMIT, 6, 0)
    logs.marker(0, 6)
    logs.state(TxnState.COMPLETE_COMMIT, 6)
    assert named(logs.judged()) == [(Kind.NO_DECISION, 5, 0, offset) for offset in offsets]


@pytest.mark.parametrize(("version", "epochs"), [(0, (0, 0, 0)), (2, (0, 1, 2))])
def test_abort_by_an_operator_before_a_later_transaction_is_listed_as_that_of_an_operator(
    version: int, epochs: tuple[int, int, int]
) -> None:
    """With transaction version 0, the transactions before and after it have the epoch of the hanging data."""
    before, hanging, later = epochs
    logs = AuditLogs()
    logs.transaction(before, 0, version=version)
    logs.data(0, hanging)
    logs.marker(0, hanging, commit=False)
    logs.transaction(later, 0, version=version)
    judgment = logs.judged()
    assert judgment.violations == []
    assert [marker.fit for marker in judgment.markers] == [Fit.MATCH, Fit.BY_OPERATOR, Fit.MATCH]


@pytest.mark.parametrize("version", [0, 2])
def test_repeated_markers_are_no_violation(version: int) -> None:
    logs = AuditLogs()
    logs.transaction(0, 0, version=version)
    logs.marker(0, 1 if version else 0)
    logs.transaction(1 if version else 0, 0, version=version)
    judgment = logs.judged()
    assert judgment.violations == []
    assert statuses(judgment) == [Status.PROVEN] * 2
    assert sorted(marker.fit.value for marker in judgment.markers) == ["match", "match", "repeated"]


@pytest.mark.parametrize("version", [0, 2])
def test_data_after_the_marker_is_named(version: int) -> None:
    logs = AuditLogs()
    logs.transaction(0, 0, version=version)
    offset = logs.data(0, 0)
    assert named(logs.judged()) == [(Kind.LATE_DATA, 0, 0, offset)]


def test_data_of_a_fenced_epoch_within_the_next_transaction_is_named() -> None:
    logs = AuditLogs()
    logs.transaction(0, 0)
    logs.state(TxnState.ONGOING, 1, 0)
    offset = logs.data(0, 0)
    logs.data(0, 1)
    logs.state(TxnState.PREPARE_COMMIT, 2, 0)
    logs.marker(0, 2)
    logs.state(TxnState.COMPLETE_COMMIT, 2)
    assert named(logs.judged()) == [(Kind.LATE_DATA, 0, 0, offset)]


def test_data_without_a_transaction_is_named() -> None:
    logs = AuditLogs()
    logs.transaction(0, 0)
    offset = logs.data(1, 1)
    assert named(logs.judged()) == [(Kind.STRAY_DATA, 1, 1, offset)]


def test_data_with_an_epoch_that_the_transaction_does_not_have_is_named() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 3, 0)
    offset = logs.data(0, 2)
    logs.state(TxnState.PREPARE_COMMIT, 4, 0)
    logs.marker(0, 4)
    logs.state(TxnState.COMPLETE_COMMIT, 4)
    assert named(logs.judged()) == [(Kind.DATA_EPOCH, 2, 0, offset)]


def test_open_and_in_doubt_transactions_are_listed() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    assert [data.state for data in logs.judged().open_data] == ["Ongoing"]
    logs.state(TxnState.ONGOING, 0, 0, timeout_ms=2_147_483_647)
    judgment = logs.judged()
    assert [data.state for data in judgment.open_data] == ["in doubt"]
    assert judgment.violations == []


def test_markers_of_a_kept_transaction_have_its_identity() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 100, 0)
    logs.data(0, 100)
    logs.state(TxnState.PREPARE_COMMIT, 101, 0, next_identity=(PRODUCER_ID, 103))
    logs.marker(0, 101)
    logs.state(TxnState.COMPLETE_COMMIT, 103)
    judgment = logs.judged()
    assert (statuses(judgment), judgment.violations) == ([Status.PROVEN], [])


def test_prepared_transaction_without_its_completion_is_not_decidable() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0, 1)
    logs.data(0, 0)
    logs.data(1, 0)
    logs.state(TxnState.PREPARE_COMMIT, 1, 0, 1)
    logs.marker(0, 1)
    judgment = logs.judged()
    assert (statuses(judgment), judgment.violations) == ([Status.UNDECIDABLE], [])
    assert [data.state for data in judgment.open_data] == ["completing"]


def test_decision_whose_prepare_record_was_compacted_is_not_decidable() -> None:
    logs = AuditLogs(state_compacted=True)
    logs.data(0, 0)
    logs.gap(offsets=2)
    logs.marker(0, 1)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    logs.transaction(1, 0)
    judgment = logs.judged()
    assert (statuses(judgment), judgment.violations) == ([Status.UNDECIDABLE, Status.PROVEN], [])
    assert [marker.fit for marker in judgment.markers] == [Fit.EARLIER, Fit.MATCH]


def test_removed_prepare_record_is_a_violation_if_nothing_was_compacted() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    logs.gap()
    logs.marker(0, 1)
    offset = logs.state(TxnState.COMPLETE_COMMIT, 1)
    judgment = logs.judged()
    assert (Kind.TRANSITIONS, 1, 0, offset) in named(judgment)
    assert statuses(judgment) == [Status.VIOLATED]


def test_marker_below_the_log_start_is_not_decidable() -> None:
    logs = AuditLogs(starts={0: 50})
    logs.state(TxnState.ONGOING, 0, 0)
    logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    logs.transaction(1, 0)
    judgment = logs.judged()
    assert (statuses(judgment), judgment.violations) == ([Status.UNDECIDABLE, Status.PROVEN], [])


@pytest.mark.parametrize("compacted", [False, True])
def test_missing_marker_is_excused_only_by_compaction(compacted: bool) -> None:
    logs = AuditLogs(compacted=[0] if compacted else [])
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    logs.gap(0)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    logs.transaction(1, 0)
    expected = Status.UNDECIDABLE if compacted else Status.VIOLATED
    assert statuses(logs.judged()) == [expected, Status.PROVEN]


def test_partition_that_was_not_read_is_not_decidable() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 9)
    logs.state(TxnState.PREPARE_COMMIT, 1, 9)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    [decision] = logs.judged().decisions
    assert (decision.status, decision.reason) == (Status.UNDECIDABLE, "t-9 was not read")


@pytest.mark.parametrize("version", [0, 2])
def test_decisions_before_the_topic_was_created_again_are_not_decidable(version: int) -> None:
    logs = AuditLogs()
    for epoch in (0, 1):
        end = epoch + 1 if version else 0
        logs.state(TxnState.ONGOING, end - 1 if version else 0, 0, version=version)
        logs.state(TxnState.PREPARE_COMMIT, end, 0, version=version)
        logs.state(TxnState.COMPLETE_COMMIT, end, version=version)
    logs.transaction(2 if version else 0, 0, version=version)
    judgment = logs.judged()
    assert (statuses(judgment), judgment.violations) == ([Status.UNDECIDABLE] * 2 + [Status.PROVEN], [])
    assert {each.reason for each in judgment.decisions[:2]} == {
        "t-0: the topic may have been created again after the decision"
    }


@pytest.mark.parametrize("version", [0, 2])
def test_log_that_lacks_offsets_is_not_that_of_a_topic_created_again(version: int) -> None:
    logs = AuditLogs()
    end = 1 if version else 0
    logs.state(TxnState.ONGOING, 0, 0, version=version)
    logs.gap(0, 2)
    logs.state(TxnState.PREPARE_COMMIT, end, 0, version=version)
    logs.state(TxnState.COMPLETE_COMMIT, end, version=version)
    logs.transaction(end, 0, version=version)
    assert named(logs.judged()) == [(Kind.MISSING_MARKER, end, 0, 2)]


@pytest.mark.parametrize("version", [0, 2])
def test_decision_is_not_decidable_if_the_log_has_no_marker_and_no_data_of_it(version: int) -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0, version=version)
    logs.state(TxnState.PREPARE_COMMIT, 1 if version else 0, 0, version=version)
    logs.state(TxnState.COMPLETE_COMMIT, 1 if version else 0, version=version)
    logs.data(0, 0, producer_id=8)
    [decision] = logs.judged().decisions
    assert decision.status is Status.UNDECIDABLE


@pytest.mark.parametrize("version", [0, 2])
def test_missing_first_marker_of_a_log_is_named(version: int) -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0, version=version)
    offset = logs.data(0, 0)
    end = 1 if version else 0
    logs.state(TxnState.PREPARE_COMMIT, end, 0, version=version)
    logs.state(TxnState.COMPLETE_COMMIT, end, version=version)
    logs.marker(0, 0, producer_id=8)
    judgment = logs.judged()
    assert (Kind.MISSING_MARKER, PRODUCER_ID, end, offset) in [
        (each.kind, each.producer_id, each.producer_epoch, each.offset) for each in judgment.violations
    ]


def test_hanging_data_after_the_topic_was_created_again_is_named() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    offset = logs.data(0, 1)
    assert named(logs.judged()) == [(Kind.STRAY_DATA, 1, 0, offset)]


def test_marker_of_an_unknown_producer_is_excused_if_transitions_were_removed() -> None:
    for state_compacted, expected in ((False, [Kind.NO_DECISION]), (True, [])):
        logs = AuditLogs(state_compacted=state_compacted)
        logs.gap()
        logs.transaction(0, 0)
        logs.marker(1, 3, producer_id=99)
        judgment = logs.judged(transactional_id="another")
        assert [each.kind for each in judgment.violations if each.producer_id == 99] == expected


def test_markers_newer_than_the_transitions_are_not_judged() -> None:
    logs = AuditLogs()
    logs.transaction(0, 0)
    offset = logs.data(0, 1)
    logs.marker(0, 2)
    assert len(logs.judged().violations) == 1
    judgment = logs.judged(judged_below={0: offset})
    assert judgment.violations == []
    assert [marker.fit for marker in judgment.markers] == [Fit.MATCH, Fit.NEWER]


@pytest.mark.parametrize("version", [0, 2])
def test_marker_of_a_prepared_transaction_is_not_taken_for_a_newer_one(version: int) -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 5, 0, version=version)
    logs.data(0, 5)
    end = 6 if version else 5
    logs.state(TxnState.PREPARE_COMMIT, end, 0, version=version)
    own = logs.marker(0, end)
    newer = logs.data(0, end)
    logs.marker(0, end + 1 if version else end)
    judgment = logs.judged(judged_below={0: newer})
    assert judgment.violations == []
    assert [(each.marker.first_offset, each.fit) for each in judgment.markers] == [
        (own, Fit.MATCH),
        (newer + 1, Fit.NEWER),
    ]


def test_contradicting_records_are_named() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0, 1)
    logs.data(0, 0)
    logs.data(1, 0)
    offset = logs.state(TxnState.PREPARE_COMMIT, 5, 0)
    logs.marker(0, 5)
    logs.marker(1, 5)
    logs.state(TxnState.COMPLETE_ABORT, 5)
    judgment = logs.judged()
    assert [(kind, at) for kind, _, _, at in named(judgment)] == [(Kind.TRANSITIONS, offset)] * 3
    assert statuses(judgment) == [Status.VIOLATED]


def test_decision_that_another_decision_follows_without_a_completion_is_named() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    offset = logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    logs.marker(0, 1)
    second = logs.state(TxnState.PREPARE_ABORT, 1, 0)
    logs.marker(0, 1, commit=False)
    logs.state(TxnState.COMPLETE_ABORT, 1)
    judgment = logs.judged()
    assert [(kind, at) for kind, _, _, at in named(judgment)] == [(Kind.TRANSITIONS, at) for at in (offset, second)]
    assert statuses(judgment) == [Status.VIOLATED] * 2


@pytest.mark.parametrize("compacted", [False, True])
def test_decision_that_a_transaction_follows_without_a_completion_is_named_unless_it_was_removed(
    compacted: bool,
) -> None:
    logs = AuditLogs(state_compacted=compacted)
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    offset = logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    logs.marker(0, 1)
    if compacted:
        logs.gap()
    logs.transaction(1, 0)
    expected = [] if compacted else [(Kind.TRANSITIONS, 1, 0, offset)]
    assert named(logs.judged()) == expected


@pytest.mark.parametrize(
    ("next_identity", "identity", "follows"),
    [
        ((-1, -1), (PRODUCER_ID, 1), True),
        ((-1, -1), (PRODUCER_ID, 9), False),
        ((PRODUCER_ID, 3), (PRODUCER_ID, 3), True),
        ((PRODUCER_ID, 3), (PRODUCER_ID, 1), False),
        ((8, -1), (8, 0), True),
        ((8, -1), (8, 1), False),
        ((8, -1), (PRODUCER_ID, 0), False),
    ],
)
def test_completion_has_the_identity_of_the_decision_or_the_next_one(
    next_identity: tuple[int, int], identity: tuple[int, int], follows: bool
) -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    offset = logs.state(TxnState.PREPARE_COMMIT, 1, 0, next_identity=next_identity)
    logs.marker(0, 1)
    logs.state(TxnState.COMPLETE_COMMIT, identity[1], producer_id=identity[0])
    assert named(logs.judged()) == ([] if follows else [(Kind.TRANSITIONS, 1, 0, offset)])


@pytest.mark.parametrize("compacted", [False, True])
def test_decision_with_partitions_has_an_ongoing_record_unless_it_was_removed(compacted: bool) -> None:
    logs = AuditLogs(state_compacted=compacted)
    logs.state(TxnState.EMPTY, 0)
    logs.data(0, 0)
    if compacted:
        logs.gap()
    offset = logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    logs.marker(0, 1)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    assert named(logs.judged()) == ([] if compacted else [(Kind.TRANSITIONS, 1, 0, offset)])


def test_records_that_the_coordinator_wrote_again_are_one_decision() -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 0, 0)
    logs.data(0, 0)
    logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    logs.state(TxnState.PREPARE_COMMIT, 1, 0)
    logs.marker(0, 1)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    logs.state(TxnState.COMPLETE_COMMIT, 1)
    judgment = logs.judged()
    assert (statuses(judgment), judgment.violations) == ([Status.PROVEN], [])


@pytest.mark.parametrize("epoch", [11, 12])
def test_abort_by_the_broker_may_raise_the_epoch_twice(epoch: int) -> None:
    logs = AuditLogs()
    logs.state(TxnState.ONGOING, 10, 0)
    logs.data(0, 10)
    logs.state(TxnState.PREPARE_ABORT, epoch, 0)
    logs.marker(0, epoch, commit=False)
    logs.state(TxnState.COMPLETE_ABORT, epoch)
    judgment = logs.judged()
    assert (statuses(judgment), judgment.violations) == ([Status.PROVEN], [])
