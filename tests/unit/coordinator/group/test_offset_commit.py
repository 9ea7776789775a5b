"""OffsetCommit and TxnOffsetCommit: checks of members, records, and limits."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.coordinator.group import state as group_state
from odradek.coordinator.group.offset_store import StoredOffset
from odradek.coordinator.group.offsets import commit as commits
from odradek.coordinator.group.ports import GroupConfig
from odradek.coordinator.group.records import from_record
from odradek.coordinator.group.state import GroupKind
from odradek.protocol.errors import ErrorCode
from odradek.runtime.shard import Marker, ShardRecord
from tests.support.offsets_rig import (
    NOW_MS,
    FakeGroup,
    OffsetsRig,
    commit,
    commit_in_transaction,
    errors,
    fetch,
    fetched,
    offset_of,
)

T3 = ("t", 3)
KEY = "000100016700017400000003"  # the key of (g, t, 3)
TS = "0000018bcfe56800"  # NOW_MS


@pytest.fixture
def rig() -> OffsetsRig:
    return OffsetsRig()


def written(rig: OffsetsRig) -> list[ShardRecord]:
    return [entry for _, entry in rig.log if isinstance(entry, ShardRecord)]


def test_offset_record_has_kafkas_bytes(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T3: 42}, epoch=7))
    (record,) = written(rig)
    assert record.key is not None
    assert record.value is not None
    assert record.key.hex() == KEY
    assert record.value.hex() == "0004000000000000002a0000000701" + TS + "00"
    assert (record.producer_id, record.producer_epoch) == (-1, -1)


def test_offset_record_contains_the_topic_id(rig: OffsetsRig) -> None:
    topic_id = UUID(int=(1 << 64) + 2)
    reply = rig.do(commit("g", {T3: 42}, version=10, epoch=7, topic_id=topic_id))
    assert reply.topics[0].topic_id == topic_id
    (record,) = written(rig)
    assert record.value is not None
    assert record.value.hex() == "0004000000000000002a0000000701" + TS + "01001000000000000000010000000000000002"
    stored = rig.store.get("g", "t", 3)
    assert stored == StoredOffset(42, 7, NOW_MS, -1, 0, topic_id.bytes, "")


def test_an_explicit_retention_is_written_as_version_1(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T3: 42}, version=4, retention_ms=60_000, epoch=7, topic_id=UUID(int=5)))
    (record,) = written(rig)
    assert record.value is not None
    assert record.value.hex() == "0001000000000000002a0000" + TS + (NOW_MS + 60_000).to_bytes(8, "big").hex()
    assert (
        rig.replayed().offsets == rig.store
    )  # version 1 has no epoch and no topic id, so the live state must have none


@pytest.mark.parametrize(
    ("retention_ms", "expire_ms"),
    [(0, NOW_MS), (2**63 - 1, 2**63 - 1), (-2, NOW_MS - 2), (-NOW_MS - 1, 0), (-(2**63), 0), (-1, -1)],
)
def test_any_retention_of_a_client_fits_the_record(rig: OffsetsRig, retention_ms: int, expire_ms: int) -> None:
    assert errors(rig.do(commit("g", {T3: 42}, version=2, retention_ms=retention_ms))) == {T3: "NONE"}
    stored = rig.store.get("g", "t", 3)
    assert stored is not None
    assert stored.expire_ms == expire_ms
    assert rig.replayed().offsets == rig.store


def test_commit_for_an_unknown_group_creates_it(rig: OffsetsRig) -> None:
    assert errors(rig.do(commit("g", {T3: 42}, metadata=None))) == {T3: "NONE"}
    group = rig.state.groups["g"]
    assert (group.kind, group.protocol_type, group.is_empty) == (GroupKind.CLASSIC, "", True)
    assert fetched(rig.do(fetch("g", T3))) == {T3: 42}
    assert rig.replayed().groups.keys() == {"g"}


@pytest.mark.parametrize(("version", "error"), [(8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")])
def test_commit_of_a_member_of_an_unknown_group_is_refused(rig: OffsetsRig, version: int, error: str) -> None:
    assert rig.do(commit("g", {T3: 42}, version=version, generation=0, member_id="m")) == error
    assert rig.log == []
    assert "g" not in rig.state.groups


@pytest.mark.parametrize(
    ("version", "error"), [(0, "ILLEGAL_GENERATION"), (5, "ILLEGAL_GENERATION"), (6, "GROUP_ID_NOT_FOUND")]
)
def test_transactional_commit_of_a_member_of_an_unknown_group_is_refused(
    rig: OffsetsRig, version: int, error: str
) -> None:
    request = commit_in_transaction(1, "g", {T3: 42}, version=version, generation=0)
    assert rig.do(request) == error
    assert errors(rig.do(commit_in_transaction(1, "g", {T3: 42}, version=version))) == {T3: "NONE"}


def test_group_checks_the_committing_member(rig: OffsetsRig) -> None:
    group = rig.group(FakeGroup("g"))
    decision = rig.decide(commit("g", {T3: 42}, version=7, generation=5, member_id="m"))
    assert group.recorded_checks == [("commit", "m", None, 5, False, 7)]
    assert [timer.key for timer in decision.timers] == [("session", "g", "m")]
    rig.decide(commit_in_transaction(1, "g", {T3: 42}, generation=5, member_id="m"))
    assert group.recorded_checks[1:] == [("commit", "m", None, 5, True, 5)]
    group.refuses["commit"] = ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.do(commit("g", {T3: 42}, generation=5, member_id="m")) == "REBALANCE_IN_PROGRESS"
    assert rig.log == []


def test_consumer_group_checks_each_partition(rig: OffsetsRig) -> None:
    topic_id = UUID(bytes=rig.topics.make("t").topic_id)
    group = rig.group(FakeGroup("g", kind=GroupKind.CONSUMER))
    rig.decide(commit("g", {T3: 42, ("t", 4): 1}, generation=5, member_id="m", topic_id=topic_id))
    assert group.recorded_checks[1:] == [("commit of", "m", 5, topic_id.bytes, "t", part) for part in (3, 4)]
    group.recorded_checks.clear()
    offsets = {T3: 42, ("t", 4): 1}
    rig.decide(commit_in_transaction(1, "g", offsets, generation=5, member_id="m", topic_id=topic_id))
    assert group.recorded_checks[1:] == [("commit of", "m", 5, topic_id.bytes, "t", part) for part in (3, 4)]


@pytest.mark.parametrize("check", ["commit", "commit of"])
def test_stale_epoch_in_a_transaction_is_an_illegal_generation_before_version_6(rig: OffsetsRig, check: str) -> None:
    rig.group(FakeGroup("g", kind=GroupKind.CONSUMER, refuses={check: ErrorCode.STALE_MEMBER_EPOCH}))
    assert rig.do(commit("g", {T3: 42}, generation=5)) == "STALE_MEMBER_EPOCH"
    assert rig.do(commit_in_transaction(1, "g", {T3: 42}, generation=5)) == "ILLEGAL_GENERATION"
    assert rig.do(commit_in_transaction(1, "g", {T3: 42}, generation=5, version=6)) == "STALE_MEMBER_EPOCH"
    assert rig.log == []


@pytest.mark.parametrize(
    ("metadata", "fits"), [("x" * 8, True), ("x" * 9, False), ("é" * 8, True), ("😀" * 4, True), ("😀" * 5, False)]
)
def test_too_large_metadata_is_refused_only_for_its_partition(metadata: str, fits: bool) -> None:
    """The limit counts UTF-16 code units."""
    rig = OffsetsRig(config=GroupConfig(offset_metadata_max_bytes=8))
    expected = "NONE" if fits else "OFFSET_METADATA_TOO_LARGE"
    mixed = commit("g", {T3: 1, ("t", 4): 2})
    mixed.request.topics[0].partitions[0].committed_metadata = metadata
    assert errors(rig.do(mixed)) == {T3: expected, ("t", 4): "NONE"}
    assert errors(rig.do(commit_in_transaction(1, "g", {T3: 1}, metadata=metadata))) == {T3: expected}
    stored = rig.store.get("g", "t", 3)
    assert (stored is not None) is fits
    assert rig.replayed().offsets == rig.store


def test_number_of_offsets_is_limited(rig: OffsetsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing offsets can be committed again. Further ones are refused, in transactions and outside."""
    monkeypatch.setattr(commits, "OFFSETS_MAX", 3)
    full = "INVALID_COMMIT_OFFSET_SIZE"
    assert errors(rig.do(commit("g", {("t", 0): 1, ("t", 1): 1}))) == {("t", 0): "NONE", ("t", 1): "NONE"}
    assert errors(rig.do(commit_in_transaction(1, "h", {("t", 0): 1}))) == {("t", 0): "NONE"}
    assert errors(rig.do(commit("g", {("t", 1): 2, ("t", 2): 2}))) == {("t", 1): "NONE", ("t", 2): full}
    assert errors(rig.do(commit_in_transaction(1, "h", {("t", 0): 2, ("t", 1): 2}))) == {
        ("t", 0): "NONE",
        ("t", 1): full,
    }
    assert errors(rig.do(commit_in_transaction(2, "h", {("t", 0): 2}))) == {("t", 0): full}
    ours = {("t", 0): 2, ("t", 1): 2}
    assert errors(rig.do(commit_in_transaction(3, "g", ours))) == dict.fromkeys(ours, "NONE"), (
        "the group has committed offsets for these partitions"
    )
    assert errors(rig.do(commit_in_transaction(4, "g", ours))) == {("t", 0): "NONE", ("t", 1): full}, (
        "the extra capacity is limited"
    )
    rig.marker(3, commit=False)
    rig.marker(4, commit=False)
    rig.marker(1, commit=False)
    assert errors(rig.do(commit("g", {("t", 2): 2}))) == {("t", 2): "NONE"}


def test_metadata_bytes_of_offsets_are_limited(rig: OffsetsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "METADATA_BYTES_MAX", 10)
    full = "INVALID_COMMIT_OFFSET_SIZE"
    assert errors(rig.do(commit("g", {("t", 0): 1}, metadata="12345678"))) == {("t", 0): "NONE"}
    assert errors(rig.do(commit("g", {("t", 1): 1}, metadata="123"))) == {("t", 1): full}
    assert errors(rig.do(commit("g", {("t", 1): 1}))) == {("t", 1): "NONE"}, "an offset without metadata is accepted"
    assert errors(rig.do(commit_in_transaction(1, "g", {("t", 2): 1}, metadata="\u00e9"))) == {("t", 2): "NONE"}
    assert errors(rig.do(commit_in_transaction(1, "g", {("t", 2): 2}, metadata="ab"))) == {("t", 2): "NONE"}
    assert errors(rig.do(commit_in_transaction(1, "g", {("t", 2): 3}, metadata="abc"))) == {("t", 2): full}
    assert errors(rig.do(commit("g", {("t", 0): 2}, metadata="1234"))) == {("t", 0): "NONE"}, (
        "shorter metadata is accepted"
    )
    assert errors(rig.do(commit("g", {("t", 0): 3}, metadata="12345678"))) == {("t", 0): "NONE"}
    assert rig.store.metadata_bytes == 10
    rig.marker(1, commit=False)
    assert rig.store.metadata_bytes == 8
    assert rig.replayed().offsets == rig.store


def test_number_of_groups_created_by_commits_is_limited(rig: OffsetsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_state, "GROUPS_MAX", 2)
    for group_id in ("a", "b"):
        assert errors(rig.do(commit(group_id, {T3: 1}))) == {T3: "NONE"}
    assert rig.do(commit("c", {T3: 1})) == "INVALID_COMMIT_OFFSET_SIZE"
    assert rig.do(commit_in_transaction(1, "c", {T3: 1})) == "INVALID_COMMIT_OFFSET_SIZE"
    assert errors(rig.do(commit("a", {T3: 2}))) == {T3: "NONE"}


def test_pending_offsets_share_the_string_of_their_group_id(rig: OffsetsRig) -> None:
    """A group id can have 32 KiB, and each request contains a new copy."""
    for producer_id in (1, 2):
        rig.do(commit_in_transaction(producer_id, b"long name".decode(), {T3: 1}))
    (first,), (second,) = rig.store.pending.values()
    assert first[0] is second[0]
    assert rig.replayed().offsets == rig.store


# ---- transactions ---------------------------------------------------------------------------------------------------


def test_transactional_offset_record_contains_the_producer(rig: OffsetsRig) -> None:
    rig.do(commit_in_transaction(1000, "g", {T3: 42}, epoch=5))
    (record,) = written(rig)
    assert (record.producer_id, record.producer_epoch) == (1000, 5)
    assert record.value is not None
    assert record.value.hex() == "0004000000000000002affffffff01" + TS + "00"
    entry = from_record(record)
    assert entry is not None
    assert entry.key.topic == "t"


def test_transactional_offset_of_a_former_topic_is_not_used(rig: OffsetsRig) -> None:
    former, current = UUID(int=1), UUID(int=2)
    rig.do(commit_in_transaction(1, "g", {T3: 42}, topic_id=former))
    rig.marker(1, commit=True)
    assert fetched(rig.do(fetch("g", T3, topic_id=former))) == {T3: 42}
    assert fetched(rig.do(fetch("g", T3, topic_id=current))) == {T3: -1}


@pytest.mark.parametrize(("is_commit", "after"), [(True, 42), (False, 7)])
def test_marker_commits_or_drops_pending_offsets(rig: OffsetsRig, is_commit: bool, after: int) -> None:
    rig.do(commit("g", {T3: 7}))
    rig.do(commit_in_transaction(1, "g", {T3: 42}))
    assert fetched(rig.do(fetch("g", T3))) == {T3: 7}
    assert fetched(rig.do(fetch("g", T3, stable=True))) == {T3: "UNSTABLE_OFFSET_COMMIT"}
    rig.marker(1, commit=is_commit)
    assert fetched(rig.do(fetch("g", T3, stable=True))) == {T3: after}
    assert (rig.store.pending, rig.store.open) == ({}, {})
    assert rig.store.pending_count == 0


def test_later_record_of_plain_and_transactional_commit_wins(rig: OffsetsRig) -> None:
    """The order of the markers does not matter: compaction keeps the later record, and a replay must agree."""
    rig.do(commit_in_transaction(1, "g", {T3: 1}))
    rig.do(commit_in_transaction(2, "g", {T3: 2}))
    rig.do(commit("g", {T3: 7}))
    rig.do(commit_in_transaction(3, "g", {T3: 3}))
    rig.marker(3, commit=True)
    assert offset_of(rig, "g", "t", 3) == 3
    rig.marker(1, commit=True)
    rig.marker(2, commit=True)
    assert offset_of(rig, "g", "t", 3) == 3
    assert rig.replayed().offsets == rig.store


def test_last_offset_of_a_transaction_for_a_partition_wins(rig: OffsetsRig) -> None:
    rig.do(commit_in_transaction(1, "g", {T3: 1}))
    rig.do(commit_in_transaction(1, "g", {T3: 2}))
    assert rig.store.pending_count == 1
    rig.marker(1, commit=True)
    assert offset_of(rig, "g", "t", 3) == 2


def test_markers_without_offsets_change_nothing(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T3: 7}))
    rig.marker(9, commit=True)
    rig.marker(9, commit=False)
    assert offset_of(rig, "g", "t", 3) == 7


def test_transaction_can_commit_for_several_groups(rig: OffsetsRig) -> None:
    rig.do(commit_in_transaction(1, "g", {T3: 1}))
    rig.do(commit_in_transaction(1, "h", {T3: 2}))
    rig.do(commit_in_transaction(2, "h", {T3: 3}))
    rig.marker(2, commit=False)
    assert fetched(rig.do(fetch("h", T3, stable=True))) == {T3: "UNSTABLE_OFFSET_COMMIT"}
    rig.marker(1, commit=True)
    assert (offset_of(rig, "g", "t", 3), offset_of(rig, "h", "t", 3)) == (1, 2)


def test_replay_of_any_prefix_restores_open_transactions(rig: OffsetsRig) -> None:
    rig.do(commit("g", {T3: 7, ("t", 4): 7}))
    rig.do(commit_in_transaction(1, "g", {T3: 1, ("t", 5): 1}))
    rig.do(commit_in_transaction(2, "h", {T3: 2}))
    rig.marker(1, commit=True)
    rig.do(commit_in_transaction(1, "g", {T3: 9}))
    rig.marker(2, commit=False)
    live = OffsetsRig()
    for end, (_, entry) in enumerate(rig.log, 1):
        live.append(entry)
        replayed = live.replayed(rig.log[:end])
        assert replayed.offsets == live.store
        assert replayed.groups.keys() == live.state.groups.keys()
    assert live.store == rig.store
    rig.append(Marker(1, 0, 0, commit=True))
    assert offset_of(rig, "g", "t", 3) == 9
