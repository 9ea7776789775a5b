"""Checkers of several replicas against hand-written logs: replica logs, metadata log, committed records, markers."""

import struct
from random import Random

import pytest

from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Directory, Inode, Medium
from tests.sim.checkers.batches import Batch, read_batches
from tests.sim.checkers.committed import CommittedLog
from tests.sim.checkers.metadata_log import MetadataModel
from tests.sim.checkers.replica_log import ReplicaLog
from tests.sim.checkers.replicas import check_replicas, read_watermarks
from tests.sim.watchers.commit_delays import CommitDelays
from tests.sim.watchers.markers import MarkerKey
from tests.sim.watchers.metadata import MetadataWatch
from tests.sim.watchers.monitor import Monitor
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch, encode_marker

PLACE = ("ledger", 0)
TOPIC_ID = bytes(range(16))


def data(offset: int, *values: bytes, epoch: int = 0) -> bytes:
    return encode_batch([(None, value) for value in values], timestamp=1, base_offset=offset, leader_epoch=epoch)


def batches(*raw: bytes) -> list[Batch]:
    return list(read_batches(b"".join(raw)))


def test_replica_log_follows_appends_truncations_and_deleted_segments() -> None:
    log = ReplicaLog()
    for batch, segment, end in zip(
        batches(data(0, b"a"), data(1, b"b", b"c"), data(3, b"d")), (0, 0, 3), (70, 150, 70), strict=True
    ):
        log.add(batch, segment, end, batch)
    batch_at = log.find(2)
    assert batch_at is not None
    assert (log.end, batch_at.base_offset, log.model().end) == (4, 1, 4)
    assert log.truncate(3, 0) == 1
    assert (log.end, log.end_ever, log.model().end) == (3, 4, 3)
    assert log.truncate(0, -1) == 2
    assert (log.end, log.find(0)) == (0, None)


def test_differences_below_the_committed_offsets_are_reported() -> None:
    same = batches(data(0, b"a"), data(1, b"b"))
    other = batches(data(0, b"a"), data(1, b"x"))
    assert not list(check_replicas("t-0", {1: same, 2: same}, {1: 2, 2: 2}, whole=[1, 2]))
    assert not list(check_replicas("t-0", {1: same, 2: other}, {1: 2, 2: 1}))  # node 2 has committed only offset 0
    assert "differs" in next(check_replicas("t-0", {1: same, 2: other}, {1: 2, 2: 2}))
    older = batches(data(0, b"a"), data(1, b"b", epoch=1))
    assert "differs" in next(check_replicas("t-0", {1: same, 2: older}, {1: 2, 2: 2}))
    assert "its log ends at" in next(check_replicas("t-0", {1: same, 2: same[:1]}, {1: 2, 2: 2}))
    assert "its log ends at" in next(check_replicas("t-0", {1: same, 2: []}, {1: 2, 2: 2}))
    assert "replicas have different log end offsets" in next(
        check_replicas("t-0", {1: same, 2: same[:1]}, {}, whole=[1, 2])
    )
    assert "twice" in next(check_replicas("t-0", {1: [*same, same[1]]}, {1: 9}, whole=[1]))


def test_high_watermarks_are_read_from_the_checkpoint_file() -> None:
    assert read_watermarks("0\n2\nledger 0 17\n__transaction_state 3 4\n") == {
        PLACE: 17,
        ("__transaction_state", 3): 4,
    }


def test_first_committed_batch_missing_on_a_new_leader_is_returned() -> None:
    full, short, other = ReplicaLog(), ReplicaLog(), ReplicaLog()
    for log, raw in (
        (full, (data(0, b"a"), data(1, b"b"))),
        (short, (data(0, b"a"),)),
        (other, (data(0, b"a"), data(1, b"x", epoch=1))),
    ):
        for batch in batches(*raw):
            log.add(batch, 0, 0, batch)
    committed = CommittedLog()
    assert not committed.extend(short, 2, 0)
    assert committed.extend(full, 2, 0)
    assert committed.missing_in(full, 0) is None
    for log in (short, other):
        missing = committed.missing_in(log, 0)
        assert missing is not None
        assert missing.base_offset == 1


def test_former_leader_may_lack_batches_of_later_epochs() -> None:
    full, deposed = ReplicaLog(), ReplicaLog()
    for log, raw in ((full, (data(0, b"a"), data(1, b"b", epoch=1))), (deposed, (data(0, b"a"),))):
        for batch in batches(*raw):
            log.add(batch, 0, 0, batch)
    committed = CommittedLog()
    assert committed.extend(full, 2, 0)
    assert committed.missing_in(deposed, 0) is None
    assert committed.missing_in(deposed, 1) is committed.batches[1]
    assert committed.missing_in(ReplicaLog(), 0) is committed.batches[0]


def test_former_leader_may_lack_batches_of_its_predecessor_that_its_successor_committed() -> None:
    """An eligible replica (KIP-966) can hold more than the log of the leader of the epoch before its own."""
    full, deposed = ReplicaLog(), ReplicaLog()
    for log, raw in ((full, (data(0, b"a"), data(1, b"b"))), (deposed, (data(0, b"a"),))):
        for batch in batches(*raw):
            log.add(batch, 0, 0, batch)
    committed = CommittedLog()
    assert committed.extend(full, 1, 0)
    assert committed.extend(full, 2, 3)
    assert committed.missing_in(deposed, 1) is None
    assert committed.missing_in(deposed, 3) is committed.batches[1]
    assert committed.missing_in(ReplicaLog(), 1) is committed.batches[0]


def uvarint_ids(*ids: int) -> bytes:
    return bytes([len(ids) + 1]) + b"".join(struct.pack(">i", entry) for entry in ids)


def partition_record(leader: int, *isr: int) -> bytes:
    head = b"\x01\x03\x00" + struct.pack(">i", 0) + TOPIC_ID + uvarint_ids(1, 2, 3) + uvarint_ids(*isr)
    return head + uvarint_ids() + uvarint_ids() + struct.pack(">iii", leader, 4, 7) + b"\0"


def change_record(leader: int, *isr: int) -> bytes:
    ids = uvarint_ids(*isr)
    tags = b"\x02" + b"\x00" + bytes([len(ids)]) + ids + b"\x01\x04" + struct.pack(">i", leader)
    return b"\x01\x05\x00" + struct.pack(">i", 0) + TOPIC_ID + tags


TOPIC_RECORD = b"\x01\x02\x00" + b"\x07ledger" + TOPIC_ID + b"\0"


def metadata_log(*records: bytes, epoch: int = 1) -> list[Batch]:
    raw = (
        encode_batch([(None, record)], timestamp=1, base_offset=offset, leader_epoch=epoch)
        for offset, record in enumerate(records)
    )
    return batches(*raw)


def test_metadata_model_applies_topics_partitions_changes_and_deletions() -> None:
    model = MetadataModel()
    changes = [
        change
        for batch in metadata_log(TOPIC_RECORD, partition_record(1, 1, 2, 3), change_record(2, 2, 3))
        for change in model.apply(batch)
    ]
    assert [change.place for change in changes] == [PLACE, PLACE]
    state = model.partitions[PLACE]
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1, 2, 3), (2, 3), 2, 5)
    (removed,) = model.apply(metadata_log(b"\x01\x09\x00" + TOPIC_ID + b"\0")[0])
    assert (removed.place, removed.after, model.partitions) == (PLACE, None, {})


class Watched:
    """Monitor of three hosts whose metadata logs are written by hand."""

    def __init__(self, *, flush: bool = False, elections: bool = False) -> None:
        self.loop = SimLoop(Random(1))
        self.monitor = Monitor(
            "/data",
            "ledger",
            CommitDelays(self.loop),
            lambda: 0,
            flush=flush,
            brokers=3,
            voters=3,
            min_in_sync=2,
            elections=elections,
        )
        self.media = {number: Medium() for number in (1, 2, 3)}
        self.hosts = {number: self.monitor.watcher(number, medium) for number, medium in self.media.items()}
        self.sizes: dict[tuple[int, str], int] = {}
        self.loop.close()

    def write(self, number: int, name: str, raw: bytes, *, synced: bool = True) -> None:
        path = f"/data/{name}/00000000000000000000.log"
        size = self.sizes.get((number, name), 0)
        self.hosts[number].on_write(path, size, raw)
        self.sizes[number, name] = size + len(raw)
        if synced:
            self.hosts[number].on_synced(path, size + len(raw))

    def commit_metadata(self, *records: bytes, epoch: int = 1) -> None:
        for offset, record in enumerate(records):
            for number in (1, 2, 3):
                self.write(
                    number,
                    "__cluster_metadata-0",
                    encode_batch([(None, record)], timestamp=1, base_offset=offset, leader_epoch=epoch),
                )


def test_metadata_change_is_applied_once_durable_on_a_majority() -> None:
    watched = Watched()
    raw = encode_batch([(None, TOPIC_RECORD), (None, partition_record(1, 1, 2, 3))], timestamp=1, leader_epoch=1)
    watched.write(1, "__cluster_metadata-0", raw)
    watched.write(2, "__cluster_metadata-0", raw, synced=False)
    assert watched.monitor.metadata.partitions == {}
    watched.write(3, "__cluster_metadata-0", raw)
    assert watched.monitor.metadata.partitions[PLACE].leader == 1
    assert isinstance(watched.monitor._metadata, MetadataWatch)


def test_watermark_beyond_the_isr_and_acknowledgment_by_too_few_are_reported() -> None:
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    watched.write(1, "ledger-0", data(0, b"a", epoch=4))
    watched.monitor.acknowledged(1, PLACE, 0, b"a")
    assert "I12" in watched.monitor.violations.pop()
    watched.write(2, "ledger-0", data(0, b"a", epoch=4))
    watched.monitor.acknowledged(1, PLACE, 0, b"a")
    assert watched.monitor.violations == []
    watched.monitor.advertised(PLACE, 1, 1)
    assert "broker 3 of the ISR holds 0 at most" in watched.monitor.violations.pop()


def test_acknowledgment_counts_holders_of_the_copy_of_its_sender() -> None:
    """The acknowledgment refers to the copy that the acknowledging broker holds.

    1. A producer resends a batch. The leader of the next epoch does not have it and writes it again.
    2. The leader after that finds the first copy and acknowledges it.
    """
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2):
        watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    watched.write(3, "ledger-0", data(0, b"x", epoch=5))
    watched.write(3, "ledger-0", data(1, b"a", epoch=5))
    watched.monitor.acknowledged(2, PLACE, 0, b"a")
    assert watched.monitor.violations == []
    watched.monitor.acknowledged(3, PLACE, 1, b"a")
    assert "offset 1 was acknowledged by broker 3 while 1 held it" in watched.monitor.violations.pop()


def test_all_brokers_but_the_leader_of_the_controller_are_deposed() -> None:
    watched = Watched()
    assert not watched.monitor.is_deposed(PLACE, 1)  # the metadata do not have the partition yet
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    assert [watched.monitor.is_deposed(PLACE, number) for number in (1, 2, 3)] == [False, True, True]


def test_copy_of_another_epoch_does_not_count_as_holder() -> None:
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2):
        watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    watched.write(3, "ledger-0", data(0, b"a", epoch=5))
    watched.monitor.acknowledged(3, PLACE, 0, b"a")
    assert "offset 0 was acknowledged by broker 3 while 1 held it" in watched.monitor.violations.pop()
    watched.monitor.acknowledged(1, PLACE, 0, b"a")
    assert watched.monitor.violations == []


def test_two_leaders_of_one_epoch_and_leader_without_committed_data_are_reported() -> None:
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2, 3):
        watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    watched.monitor.advertised(PLACE, 1, 1)
    watched.write(1, "ledger-0", data(1, b"b", epoch=4))
    assert watched.monitor.violations == []
    watched.write(2, "ledger-0", data(1, b"x", epoch=4))
    assert "I11 two leaders in one epoch" in watched.monitor.violations.pop()
    watched.hosts[3].on_truncate("/data/ledger-0/00000000000000000000.log", 0)
    watched.sizes[3, "ledger-0"] = 0
    watched.write(3, "ledger-0", data(0, b"y", epoch=5))
    assert "leads in epoch 5 without offset 0" in watched.monitor.violations.pop()


def test_leader_with_lost_disk_is_checked_with_its_log_before_the_loss() -> None:
    """The last response of the leader may arrive after its disk was replaced."""
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2):
        watched.write(number, "ledger-0", data(0, b"a", epoch=3))
    committed = watched.monitor.committed.setdefault(PLACE, CommittedLog())
    committed.extend(watched.hosts[2].log(PLACE), 1, 0)
    watched.monitor.lost_data(1, Medium())
    watched.monitor.advertised(PLACE, 1, 1)
    assert [entry for entry in watched.monitor.violations if "I11" in entry] == []


def test_leader_without_committed_batch_is_reported_when_its_disk_is_lost() -> None:
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    watched.write(2, "ledger-0", data(0, b"a", epoch=3))
    watched.monitor.committed.setdefault(PLACE, CommittedLog()).extend(watched.hosts[2].log(PLACE), 1, 0)
    watched.monitor.lost_data(1, Medium())
    assert "broker 1 leads in epoch 4 without offset 0" in watched.monitor.violations.pop()


def test_checks_of_a_broker_begin_again_when_it_is_in_sync_after_a_loss() -> None:
    watched = Watched()
    monitor = watched.monitor
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2, 3):
        watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    monitor.advertised(PLACE, 1, 1)
    monitor.lost_data(3, Medium())
    watched.write(1, "ledger-0", data(1, b"b", epoch=4))
    watched.write(2, "ledger-0", data(1, b"b", epoch=4))
    monitor.advertised(PLACE, 1, 2)
    assert monitor.violations == [], "broker 3 has lost its data, and is not in sync yet"
    monitor.on_metadata()
    monitor.advertised(PLACE, 1, 2)
    assert monitor.violations == [], "the ISR is from the time before the loss: broker 3 is not up"
    monitor.is_up = lambda _: True
    monitor.on_metadata()
    watched.write(1, "ledger-0", data(2, b"c", epoch=4))
    monitor.advertised(PLACE, 1, 3)
    assert "broker 3 of the ISR holds 0 at most" in " ".join(monitor.violations)


def test_second_controller_of_an_epoch_is_reported() -> None:
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD)
    other = encode_batch([(None, partition_record(1, 1, 2, 3))], timestamp=1, base_offset=1, leader_epoch=1)
    watched.write(2, "__cluster_metadata-0", other)
    assert "I12 two controllers in one term: brokers 1 and 2" in watched.monitor.violations.pop()


def test_leader_that_acts_before_its_election_is_durable_is_reported() -> None:
    watched = Watched(elections=True)
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    watched.write(1, "ledger-0", data(0, b"a", epoch=4))
    assert watched.monitor.violations == []
    change = encode_batch([(None, change_record(2, 2, 3))], timestamp=1, base_offset=2, leader_epoch=1)
    for number in (1, 2, 3):
        watched.write(number, "__cluster_metadata-0", change, synced=False)
    watched.write(2, "ledger-0", data(1, b"b", epoch=5))
    assert "broker 2 leads in epoch 5 before its election is durable" in watched.monitor.violations.pop()


def test_acknowledged_record_must_be_flushed_on_the_minimum_isr() -> None:
    watched = Watched(flush=True)
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    raw = data(0, b"a", epoch=4)
    for number in (1, 2):
        directory = Directory()
        root = Directory(live={"ledger-0": directory}, durable={"ledger-0": directory})
        watched.media[number].root.change(("data", root))
        file = Inode(live=bytearray(raw), durable=bytearray(raw) if number == 1 else bytearray())
        directory.change(("00000000000000000000.log", file))
        directory.make_durable()
        watched.write(number, "ledger-0", raw)
    watched.monitor.acknowledged(1, PLACE, 0, b"a")
    assert "offset 0 was acknowledged by broker 1 while it was durable on [1]" in watched.monitor.violations.pop()
    file.durable[:] = raw
    watched.monitor.acknowledged(1, PLACE, 0, b"a")
    assert watched.monitor.violations == []


STATE_KEY = struct.pack(">hh", 0, 4) + b"bank"
ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 1, 2, 4


def coordinator_value(state: int, *partitions: int) -> bytes:
    """Return a value of the transaction log, version 0: producer 7 with epoch 5 and these partitions of the ledger."""
    places = struct.pack(">i", len(partitions)) + b"".join(struct.pack(">i", entry) for entry in partitions)
    topics = struct.pack(">ih", 1, 6) + b"ledger" + places if partitions else struct.pack(">i", 0)
    return struct.pack(">hqhib", 0, 7, 5, 1000, state) + topics + struct.pack(">qq", 1, 1)


def commit_and_begin_next(watched: Watched, hosts: int) -> None:
    """Write to `hosts` hosts: the first transaction is committed, and the next one, of the same epoch, is open."""
    for number in (1, 2, 3)[:hosts]:
        for offset, value in enumerate(
            (coordinator_value(PREPARE_COMMIT, 0), coordinator_value(COMPLETE_COMMIT), coordinator_value(ONGOING, 0))
        ):
            raw = encode_batch([(STATE_KEY, value)], timestamp=1, base_offset=offset)
            watched.write(number, "__transaction_state-0", raw)


def marker(offset: int, *, commit: bool) -> bytes:
    return encode_marker(
        producer_id=7,
        producer_epoch=5,
        coordinator_epoch=0,
        commit=commit,
        timestamp=1,
        base_offset=offset,
        leader_epoch=4,
    )


@pytest.mark.parametrize(
    ("deposed", "commit", "decided_on", "accepted"),
    [(True, True, 2, True), (False, True, 2, False), (True, False, 2, False), (True, True, 1, False)],
)
def test_late_marker_is_accepted_from_deposed_leader_only(
    *, deposed: bool, commit: bool, decided_on: int, accepted: bool
) -> None:
    """The coordinator already runs the next transaction; a paused leader writes the marker of the previous one."""
    watched = Watched()
    change = (change_record(2, 2, 3),) if deposed else ()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3), *change)
    commit_and_begin_next(watched, decided_on)
    watched.write(1, "ledger-0", marker(0, commit=commit))
    violations = [entry for entry in watched.monitor.violations if "I14" in entry]
    assert (violations == []) is accepted
    assert ("marker appended by a deposed leader" in watched.monitor.counters) is accepted


def open_record() -> bytes:
    """Return a record of the open transaction of the producer."""
    return encode_batch(
        [(None, b"v")],
        timestamp=1,
        producer_id=7,
        producer_epoch=5,
        base_sequence=0,
        attributes=TRANSACTIONAL,
        leader_epoch=4,
    )


@pytest.mark.parametrize(
    ("held", "accepted"), [((7, 5, True, PLACE), True), ((7, 5, False, PLACE), False), ((7, 4, True, PLACE), False)]
)
def test_only_the_delayed_marker_may_end_the_next_classic_transaction(*, held: MarkerKey, accepted: bool) -> None:
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    commit_and_begin_next(watched, 2)
    watched.write(1, "ledger-0", open_record())
    watched.monitor.late_markers[held] = None
    watched.write(1, "ledger-0", marker(1, commit=True))
    assert (watched.monitor.violations == []) is accepted
    assert (watched.monitor.ended_late == {b"v": None}) is accepted


@pytest.mark.parametrize("coordinator", [0, 1])
def test_uncommitted_decision_does_not_hide_the_decision_of_a_late_marker(coordinator: int) -> None:
    """The uncommitted decision is from the former, isolated coordinator, or from its successor.

    The next transaction is open in both cases.
    """
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    commit_and_begin_next(watched, 2)
    uncommitted = encode_batch(
        [(STATE_KEY, coordinator_value(PREPARE_COMMIT, 0))], timestamp=1, base_offset=3, leader_epoch=coordinator
    )
    watched.write(2 + coordinator, "__transaction_state-0", uncommitted)
    watched.write(1, "ledger-0", open_record())
    watched.monitor.late_markers[7, 5, True, PLACE] = None
    watched.write(1, "ledger-0", marker(1, commit=True))
    assert watched.monitor.violations == []
    assert watched.monitor.ended_late == {b"v": None}


def test_uncommitted_decision_does_not_permit_a_marker() -> None:
    watched = Watched()
    watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    watched.write(
        1, "__transaction_state-0", encode_batch([(STATE_KEY, coordinator_value(PREPARE_COMMIT, 0))], timestamp=1)
    )
    watched.write(1, "ledger-0", open_record())
    watched.monitor.late_markers[7, 5, True, PLACE] = None
    watched.write(1, "ledger-0", marker(1, commit=True))
    assert "decided on 1 brokers, not 2" in watched.monitor.violations.pop()
