"""Transaction coordinator: shards, markers and completions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from odradek.coordinator.txn import marker_driver, service
from odradek.coordinator.txn.ports import Marker
from odradek.coordinator.txn.records import encode_key, to_record
from odradek.coordinator.txn.service import CLIENT_ID_LENGTH_MAX, TransactionDescription
from odradek.protocol.errors import ErrorCode, Refusal, Unencodable
from odradek.protocol.hashing import partition_for
from odradek.protocol.special_values import NO_LEADER
from odradek.protocol.txn_state import TxnState
from odradek.runtime import shards
from odradek.runtime.shard import ShardRecord
from tests.support.coordinator_rig import SHARD, CoordinatorRig, settle
from tests.support.fake_shard_log import FakeShardLog
from tests.support.txn_rig import ID, NOW_MS, T0, T1, transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.coordinator.txn.state import Transaction

S = TxnState


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(5):
        while not await condition():
            await asyncio.sleep(0.001)


def refused(call: Callable[[], asyncio.Future[Any]]) -> ErrorCode:
    with pytest.raises(Refusal) as refusal:
        call().result()
    return refusal.value.error


@pytest.fixture(autouse=True)
def short_backoffs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_driver, "MARKER_RETRY_BACKOFF_S", 0.001)
    monkeypatch.setattr(service, "COMPLETE_RETRY_BACKOFF_S", 0.001)
    monkeypatch.setattr(shards, "RELOAD_BACKOFF_S", 0.001)


async def test_transaction_from_init_to_complete() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running(partitions=(T0, T1))
    end = rig.coordinator.end_txn(ID, pid, epoch, commit=True, client_version=2)
    assert end.result() == (pid, 1)
    assert rig.sender.sent == []  # the client receives its response before the markers are sent
    assert await rig.state() is S.PREPARE_COMMIT
    following = rig.coordinator.add_partitions(ID, pid, 1, [T0], client_version=2)
    await settle()
    assert rig.sender.sent == [(1, (Marker(pid, 1, 0, True, (T0, T1), 2),))]
    assert following.result() == {T0: ErrorCode.NONE}
    assert rig.failures == []


async def test_invalid_requests_are_refused_without_a_transaction() -> None:
    rig = await CoordinatorRig().ready()
    coordinator = rig.coordinator
    assert coordinator.init_producer_id(None, -5).result() == (0, 0)
    assert refused(lambda: coordinator.init_producer_id(None, 1, 5, -1)) is ErrorCode.INVALID_REQUEST
    assert refused(lambda: coordinator.init_producer_id(ID, 1, -1, 5)) is ErrorCode.INVALID_REQUEST
    assert refused(lambda: coordinator.init_producer_id("", 1)) is ErrorCode.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001):
        error = refused(lambda timeout_ms=timeout_ms: coordinator.init_producer_id(ID, timeout_ms))  # type: ignore[misc]
        assert error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    for name in ("", None):
        for call in (
            lambda name=name: coordinator.add_partitions(name, 1, 1, [T0]),
            lambda name=name: coordinator.verify_partitions(name, 1, 1, [T0]),
            lambda name=name: coordinator.end_txn(name, 1, 1, commit=True),
        ):
            assert refused(call) is ErrorCode.INVALID_REQUEST


async def test_ids_of_other_coordinators_and_loading_shards_are_refused() -> None:
    rig = await CoordinatorRig(wait_ms=1).ready()
    assert refused(lambda: rig.coordinator.init_producer_id("a", 1_000)) is ErrorCode.NOT_COORDINATOR
    may_load = asyncio.Event()

    class Slow(FakeShardLog):
        async def replay(self, visit: Any) -> None:
            await may_load.wait()

    loading = rig.tasks.spawn(rig.coordinator.on_leadership(47, 0, Slow()), "load")
    await settle()
    # This holds for an unknown id, too: the log that is not replayed yet may have a record of it.
    with pytest.raises(Refusal) as refusal:
        await rig.coordinator.init_producer_id("a", 1_000)
    assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(Refusal) as refusal:
        await rig.coordinator.describe_producers([])
    assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    may_load.set()
    await loading
    assert rig.coordinator.init_producer_id("a", 1_000).result() == (0, 0)
    assert len((await rig.coordinator.describe_producers([0])).transactions) == 1


async def test_shard_resigned_before_its_load_begins_is_not_loaded() -> None:
    rig = await CoordinatorRig().ready()
    loading = rig.coordinator.on_leadership(47, 0, FakeShardLog())
    rig.coordinator.on_resignation(47)
    await loading
    assert refused(lambda: rig.coordinator.init_producer_id("a", 1_000)) is ErrorCode.NOT_COORDINATOR


async def test_assigned_shard_without_election_is_refused_as_loading() -> None:
    rig = await CoordinatorRig().ready()
    rig.awaited.append(47)
    assert refused(lambda: rig.coordinator.init_producer_id("a", 1_000)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.coordinator.stop()
    assert refused(lambda: rig.coordinator.init_producer_id("a", 1_000)) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ConnectionError("gone")]
)
async def test_markers_are_retried_until_they_are_written(error: ErrorCode | OSError) -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    rig.sender.errors = [error, error]
    rig.coordinator.end_txn(ID, pid, epoch, commit=False).result()

    async def complete() -> bool:
        return await rig.state() is S.COMPLETE_ABORT

    await wait_until(complete)
    assert len(rig.sender.sent) == 3


async def test_deleted_topic_does_not_block_a_completion() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running(partitions=(T0, T1))
    rig.leaders = {T0: NO_LEADER}
    rig.coordinator.end_txn(ID, pid, epoch, commit=True).result()
    await settle()
    described = await rig.coordinator.describe(ID)
    assert (described.transaction.state, list(described.partitions)) == (S.PREPARE_COMMIT, [T0])
    rig.move(T0, None)
    await settle()
    assert await rig.state() is S.COMPLETE_COMMIT
    assert rig.sender.sent == []


async def test_paused_broker_does_not_block_a_completion_after_its_partition_moves() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    rig.sender.hold = True
    rig.coordinator.end_txn(ID, pid, epoch, commit=True, client_version=2).result()
    await settle()
    rig.sender.hold = False
    rig.move(T0, 2)
    await settle()
    assert [broker for broker, _ in rig.sender.sent] == [1, 2]
    assert await rig.state() is S.COMPLETE_COMMIT
    rig.sender.release()  # broker 1 continues
    await settle()
    assert await rig.state() is S.COMPLETE_COMMIT


async def test_transaction_completes_only_after_the_responses_of_all_leaders() -> None:
    rig = CoordinatorRig()
    rig.leaders[T1] = 2
    pid, epoch = await rig.running(partitions=(T0, T1))
    rig.sender.hold = True
    rig.coordinator.end_txn(ID, pid, epoch, commit=True, client_version=2).result()
    await settle()
    (_, first), (_, _second) = rig.sender.held
    first.set_result([{T0: ErrorCode.NONE}])
    rig.sender.held.pop(0)
    await settle()
    assert await rig.state() is S.PREPARE_COMMIT
    assert list((await rig.coordinator.describe(ID)).partitions) == [T1]
    rig.sender.release()
    await settle()
    assert await rig.state() is S.COMPLETE_COMMIT


async def test_next_transaction_begins_after_the_uncommitted_complete_record() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    rig.coordinator.end_txn(ID, pid, epoch, commit=True, client_version=2).result()
    following = rig.coordinator.add_partitions(ID, pid, epoch + 1, [T0], client_version=2)
    rig.log.lag = True
    await settle()  # the markers are written; the Complete and the Ongoing record are above the high watermark
    assert [batch[0].memo.state for batch in rig.log.batches[-2:]] == [S.COMPLETE_COMMIT, S.ONGOING]
    assert not following.done()
    rig.log.commit()
    assert following.result() == {T0: ErrorCode.NONE}


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.CORRUPT_MESSAGE])
async def test_stopped_completion_stays_prepared_until_the_shard_is_loaded_again(error: ErrorCode) -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    rig.sender.errors = [error]
    rig.coordinator.end_txn(ID, pid, epoch, commit=True, client_version=2).result()
    await settle()
    assert await rig.state() is S.PREPARE_COMMIT
    assert refused(lambda: rig.coordinator.end_txn(ID, pid, 1, commit=True, client_version=2)) is (
        ErrorCode.PRODUCER_FENCED
    )
    assert len(rig.failures) == (1 if error is ErrorCode.CORRUPT_MESSAGE else 0)
    await rig.coordinator.on_leadership(SHARD, 1, rig.log.successor())
    await settle()
    assert await rig.state() is S.COMPLETE_COMMIT
    assert [markers[0].coordinator_epoch for _, markers in rig.sender.sent] == [0, 1]


async def test_resigned_shard_drops_its_markers_and_ignores_late_responses() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    rig.sender.hold = True
    rig.coordinator.end_txn(ID, pid, epoch, commit=True).result()
    await settle()
    rig.coordinator.on_resignation(SHARD, 0)  # a late notification for the epoch under which this coordinator leads
    assert await rig.state() is S.PREPARE_COMMIT
    rig.coordinator.on_resignation(SHARD, 1)
    assert refused(lambda: rig.coordinator.end_txn(ID, pid, epoch, commit=True)) is ErrorCode.NOT_COORDINATOR
    rig.sender.release()
    await settle()
    log = rig.log.successor()
    await rig.coordinator.on_leadership(SHARD, 2, log)
    await settle()
    assert await rig.state() is S.COMPLETE_COMMIT
    assert len(log.entries) == len(rig.log.entries) + 1


async def test_older_election_does_not_replace_a_newer_one() -> None:
    rig = await CoordinatorRig().ready()
    await rig.coordinator.on_leadership(SHARD, 5, rig.log)
    engine = rig.coordinator.shards[SHARD]
    await rig.coordinator.on_leadership(SHARD, 4, rig.log)
    assert rig.coordinator.shards[SHARD] is engine


async def test_dropped_shard_is_loaded_again_and_completes_its_transactions() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    rig.sender.hold = True
    rig.coordinator.end_txn(ID, pid, epoch, commit=True).result()
    await settle()
    rig.log.broken = True
    rig.sender.release()  # the append of the Complete record fails
    await settle()
    assert refused(lambda: rig.coordinator.end_txn(ID, pid, epoch, commit=True)) is ErrorCode.NOT_COORDINATOR
    assert len(rig.failures) >= 1
    rig.log.broken = False

    async def complete() -> bool:
        try:
            return await rig.state() is S.COMPLETE_COMMIT
        except Refusal:
            return False

    await wait_until(complete)


async def test_refused_complete_record_is_retried() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    rig.coordinator.end_txn(ID, pid, epoch, commit=True).result()
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    await settle()
    assert await rig.state() is S.PREPARE_COMMIT
    rig.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR  # maps to NOT_COORDINATOR, while the shard stays loaded
    await asyncio.sleep(0.005)
    rig.log.refuse = None

    async def complete() -> bool:
        return await rig.state() is S.COMPLETE_COMMIT

    await wait_until(complete)


@pytest.mark.parametrize("method", ["before_replay", "subscribe"])
@pytest.mark.parametrize("failure", [OSError("the disk is gone"), AssertionError("a bug")])
async def test_failed_load_is_retried(method: str, failure: Exception) -> None:
    rig = CoordinatorRig()

    def fail(*_: object) -> None:
        raise failure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig.log, method, fail)
        await rig.coordinator.on_leadership(SHARD, 0, rig.log)
        assert rig.failures == [failure]
        assert refused(lambda: rig.coordinator.init_producer_id(ID, 1_000)) is ErrorCode.NOT_COORDINATOR
    rig.pool.prefetch()

    async def served() -> bool:
        try:
            return (await rig.coordinator.init_producer_id(ID, 1_000)).producer_epoch == 0
        except Refusal:
            return False

    await wait_until(served)


async def test_unreadable_record_blocks_its_id_alone_until_a_readable_record_replaces_it() -> None:
    rig = await CoordinatorRig().ready()
    other = next(name for name in (f"id-{n}" for n in range(1_000)) if rig.coordinator.partition_of(name) == SHARD)
    for name in (ID, other):
        rig.coordinator.init_producer_id(name, 1_000).result()
    rig.log.append(
        [ShardRecord(encode_key(ID), b"\x00\x01broken"), ShardRecord(b"\x00", b"x"), ShardRecord(b"\x00\x09", b"x")],
        NOW_MS,
    )
    log = rig.log.successor()
    with structlog.testing.capture_logs() as logs:
        await rig.coordinator.on_leadership(SHARD, 1, log)
    reports = [line["reason"] for line in logs if line["event"] == "unreadable record"]
    assert [line["reason"] for line in logs if line["event"] == "records ignored"] == ["1 records of unknown types: 9"]
    assert [report.partition(": ")[0] for report in reports] == ["record at offset 2", "record at offset 3"]
    assert [report.rpartition("; ")[2] for report in reports] == [f"id {ID} is blocked", "its key is unreadable"]
    assert refused(lambda: rig.coordinator.init_producer_id(ID, 1_000)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.coordinator.init_producer_id(other, 1_000).result().producer_epoch == 1
    listed = (await rig.coordinator.describe_producers([0, 1])).transactions
    assert [described.transaction.transactional_id for described in listed] == [other]
    log.append([to_record(transaction(S.EMPTY, epoch=8), 2)], NOW_MS)
    await rig.coordinator.on_leadership(SHARD, 2, log.successor())
    assert rig.coordinator.init_producer_id(ID, 1_000).result().producer_epoch == 9
    assert rig.failures == []
    rig.coordinator.stop()


async def test_markers_of_one_event_loop_iteration_share_a_request() -> None:
    rig = await CoordinatorRig().ready()
    names = [
        name for name in (f"id-{number}" for number in range(1_000)) if rig.coordinator.partition_of(name) == SHARD
    ]
    assert len(names) > 5
    for name in names:
        pid, epoch = rig.coordinator.init_producer_id(name, 60_000).result()
        rig.coordinator.add_partitions(name, pid, epoch, [T0]).result()
        rig.coordinator.end_txn(name, pid, epoch, commit=True).result()
    await settle()
    assert [len(markers) for _, markers in rig.sender.sent] == [len(names)]


async def test_describe_and_list_return_the_state_of_the_transaction() -> None:
    rig = CoordinatorRig()
    pid, _epoch = await rig.running(partitions=(T0, T1))
    described = await rig.coordinator.describe(ID)
    txn = described.transaction
    assert (txn.producer_id, txn.state.kafka_name, txn.client_id, txn.deadline_ms) == (
        pid,
        "Ongoing",
        "c",
        NOW_MS + 60_000,
    )
    assert (list(described.partitions), described.shard, described.coordinator_epoch) == ([T0, T1], SHARD, 0)
    listing = await rig.coordinator.describe_producers([pid])
    assert [entry.transaction.transactional_id for entry in listing.transactions] == [ID]
    with pytest.raises(Refusal) as refusal:
        await rig.coordinator.describe("transactional-id")
    assert refusal.value.error is ErrorCode.NOT_COORDINATOR


async def test_search_for_producers_describes_no_other_transaction_and_lets_other_work_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = await CoordinatorRig().ready()
    for shard in range(40, SHARD):
        await rig.coordinator.on_leadership(shard, 0, FakeShardLog())
    names = [name for name in map(str, range(600)) if 40 <= rig.coordinator.partition_of(name) <= SHARD]
    producers = {name: rig.coordinator.init_producer_id(name, 60_000).result().producer_id for name in names}
    described: list[str] = []
    describe = rig.coordinator._described

    def describing(led: Any, txn: Transaction) -> TransactionDescription:
        described.append(txn.transactional_id)
        return describe(led, txn)

    monkeypatch.setattr(rig.coordinator, "_described", describing)
    wanted = [names[3], names[30]]

    async def turns() -> int:
        """Search for two producers. Return the number of turns of the event loop that the search takes."""
        described.clear()
        search = asyncio.ensure_future(rig.coordinator.describe_producers([producers[name] for name in wanted]))
        count = 0
        while not search.done():
            await asyncio.sleep(0)
            count += 1
        listing = search.result()
        assert sorted(listing.shards) == list(range(40, SHARD + 1))
        assert sorted(described) == sorted(entry.transaction.transactional_id for entry in listing.transactions)
        assert sorted(described) == sorted(wanted)
        return count

    assert await turns() == 1, "a small search takes one step"
    monkeypatch.setattr(service, "SEARCHED_PER_TURN", 1)
    assert await turns() == 6, "one shard per turn"


async def test_list_leaves_out_a_shard_that_resigns_meanwhile() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    await rig.coordinator.on_leadership(47, 0, FakeShardLog())
    rig.coordinator.init_producer_id("a", 1_000).result()
    rig.log.lag = True
    uncommitted = rig.coordinator.add_partitions(ID, pid, epoch, [T1], client_version=2)
    listing = asyncio.ensure_future(rig.coordinator.describe_producers([pid, pid + 1]))
    await settle()
    assert not listing.done()
    rig.coordinator.on_resignation(SHARD, 1)
    listed = await listing
    assert [entry.transaction.transactional_id for entry in listed.transactions] == ["a"]
    assert listed.shards == (47,)
    assert refused(lambda: uncommitted) is ErrorCode.NOT_COORDINATOR


async def test_long_client_id_is_truncated() -> None:
    rig = await CoordinatorRig().ready()
    long_client_id = "c" * 32_000
    pid, epoch = rig.coordinator.init_producer_id(ID, 60_000, client_id=long_client_id).result()
    assert (await rig.coordinator.describe(ID)).transaction.client_id == long_client_id[:CLIENT_ID_LENGTH_MAX]
    rig.coordinator.add_partitions(ID, pid, epoch, [T0], client_id=f"d{long_client_id}").result()
    assert (await rig.coordinator.describe(ID)).transaction.client_id == f"d{long_client_id}"[:CLIENT_ID_LENGTH_MAX]


async def test_stopped_coordinator_refuses_requests_and_sends_no_markers() -> None:
    rig = CoordinatorRig()
    pid, epoch = await rig.running()
    rig.coordinator.end_txn(ID, pid, epoch, commit=True).result()
    rig.coordinator.stop()
    await settle()
    assert rig.sender.sent == []
    assert refused(lambda: rig.coordinator.end_txn(ID, pid, epoch, commit=True)) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(Refusal) as refusal:
        await rig.coordinator.describe_producers([])
    assert refusal.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await rig.coordinator.on_leadership(SHARD, 9, rig.log)
    assert rig.coordinator.shards == {}


async def test_value_with_a_client_version_that_no_marker_can_carry_blocks_its_id_alone() -> None:
    rig = await CoordinatorRig().ready()
    rig.log.append([poison(), to_record(prepared(), 2)], NOW_MS)
    with structlog.testing.capture_logs() as logs:
        await rig.coordinator.on_leadership(SHARD, 1, rig.log.successor())
    await settle()
    (report,) = [line["reason"] for line in logs if line["event"] == "unreadable record"]
    assert "client_transaction_version 300" in report
    assert report.endswith(f"id {ID} is blocked")
    assert [marker.producer_id for _, markers in rig.sender.sent for marker in markers] == [8]
    assert refused(lambda: rig.coordinator.init_producer_id(ID, 1_000)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.failures == []


async def test_marker_that_cannot_be_sent_delays_no_marker_for_the_same_broker() -> None:
    rig = await CoordinatorRig().ready()
    failure = Unencodable("injected")
    rig.sender.broken[7] = failure
    first, later = replace(prepared(), transactional_id=ID, producer_id=7), prepared()
    rig.log.append([to_record(txn, 2) for txn in (first, later)], NOW_MS)
    await rig.coordinator.on_leadership(SHARD, 1, rig.log.successor())

    async def sent() -> bool:
        return [marker.producer_id for _, markers in rig.sender.sent for marker in markers] == [8]

    await wait_until(sent)
    assert set(rig.failures) == {failure}
    del rig.sender.broken[7]

    async def completed() -> bool:
        return await rig.state() is S.COMPLETE_COMMIT

    await wait_until(completed)


def prepared() -> Transaction:
    """Return a prepared transaction of another id of SHARD than ID."""
    name = next(name for name in (f"id-{n}" for n in range(1_000)) if partition_for(name, 50) == SHARD)
    return transaction(S.PREPARE_COMMIT, transactional_id=name, producer_id=8)


def poison() -> ShardRecord:
    """Return a prepared transaction of ID whose markers do not fit into a WriteTxnMarkers request."""
    return to_record(transaction(S.PREPARE_ABORT, producer_id=7, client_version=300), 2)
