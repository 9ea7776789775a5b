"""What judges several replicas: followed logs, the metadata log, committed data, against hand-written good and bad cases."""

import struct
from random import Random

import pytest

from tests.sim.checkers.batches import Batch, read_batches
from tests.sim.checkers.committed import CommittedLog
from tests.sim.checkers.metadata_log import MetadataModel
from tests.sim.checkers.replica_log import ReplicaLog
from tests.sim.checkers.replicas import check_replicas, read_watermarks
from tests.sim.environment.loop import SimLoop
from tests.sim.environment.medium import Medium
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


def test_a_replica_log_follows_writes_cuts_and_segments_that_go() -> None:
    log = ReplicaLog()
    for batch, segment, end in zip(
        batches(data(0, b"a"), data(1, b"b", b"c"), data(3, b"d")), (0, 0, 3), (70, 150, 70), strict=True
    ):
        log.add(batch, segment, end, batch)
    found = log.find(2)
    assert found is not None
    assert (log.end, found.base_offset, log.model().end) == (4, 1, 4)
    assert log.truncate(3, 0) == 1
    assert (log.end, log.end_ever, log.model().end) == (3, 4, 3)
    assert log.truncate(0, -1) == 2
    assert (log.end, log.find(0)) == (0, None)


def test_replicas_that_differ_below_their_watermarks_are_found() -> None:
    same = batches(data(0, b"a"), data(1, b"b"))
    other = batches(data(0, b"a"), data(1, b"x"))
    assert not list(check_replicas("t-0", {1: same, 2: same}, {1: 2, 2: 2}, whole=[1, 2]))
    assert not list(check_replicas("t-0", {1: same, 2: other}, {1: 2, 2: 1}))  # not committed at 2
    assert "differs" in next(check_replicas("t-0", {1: same, 2: other}, {1: 2, 2: 2}))
    older = batches(data(0, b"a"), data(1, b"b", epoch=1))
    assert "differs" in next(check_replicas("t-0", {1: same, 2: older}, {1: 2, 2: 2}))
    assert "its log ends at" in next(check_replicas("t-0", {1: same, 2: same[:1]}, {1: 2, 2: 2}))
    assert "its log ends at" in next(check_replicas("t-0", {1: same, 2: []}, {1: 2, 2: 2}))
    assert "replicas have different log end offsets" in next(
        check_replicas("t-0", {1: same, 2: same[:1]}, {}, whole=[1, 2])
    )
    assert "twice" in next(check_replicas("t-0", {1: [*same, same[1]]}, {1: 9}, whole=[1]))


def test_watermarks_are_read_from_the_checkpoint_file() -> None:
    assert read_watermarks("0\n2\nledger 0 17\n__transaction_state 3 4\n") == {
        PLACE: 17,
        ("__transaction_state", 3): 4,
    }


def test_committed_batches_that_a_new_leader_lacks_are_named() -> None:
    full, short, other = ReplicaLog(), ReplicaLog(), ReplicaLog()
    for log, raw in (
        (full, (data(0, b"a"), data(1, b"b"))),
        (short, (data(0, b"a"),)),
        (other, (data(0, b"a"), data(1, b"x", epoch=1))),
    ):
        for batch in batches(*raw):
            log.add(batch, 0, 0, batch)
    committed = CommittedLog()
    assert not committed.extend(short, 2)
    assert committed.extend(full, 2)
    assert committed.missing_in(full, 0) is None
    for log in (short, other):
        missing = committed.missing_in(log, 0)
        assert missing is not None
        assert missing.base_offset == 1


def test_a_leader_need_not_hold_what_its_successors_have_committed() -> None:
    full, deposed = ReplicaLog(), ReplicaLog()
    for log, raw in ((full, (data(0, b"a"), data(1, b"b", epoch=1))), (deposed, (data(0, b"a"),))):
        for batch in batches(*raw):
            log.add(batch, 0, 0, batch)
    committed = CommittedLog()
    assert committed.extend(full, 2)
    assert committed.missing_in(deposed, 0) is None
    assert committed.missing_in(deposed, 1) is committed.batches[1]
    assert committed.missing_in(ReplicaLog(), 0) is committed.batches[0]


def uvarint_ids(*ids: int) -> bytes:
    return bytes([len(ids) + 1]) + b"".join(struct.pack(">i", each) for each in ids)


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


def test_the_metadata_log_is_read_without_the_brokers_code() -> None:
    model = MetadataModel()
    made = [
        change
        for batch in metadata_log(TOPIC_RECORD, partition_record(1, 1, 2, 3), change_record(2, 2, 3))
        for change in model.apply(batch)
    ]
    assert [change.place for change in made] == [PLACE, PLACE]
    state = model.partitions[PLACE]
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1, 2, 3), (2, 3), 2, 5)
    (removed,) = model.apply(metadata_log(b"\x01\x09\x00" + TOPIC_ID + b"\0")[0])
    assert (removed.place, removed.after, model.partitions) == (PLACE, None, {})


class Watched:
    """Three hosts whose metadata logs are written by hand."""

    def __init__(self) -> None:
        self.loop = SimLoop(Random(1))
        self.monitor = Monitor(
            "/data", "ledger", CommitDelays(self.loop), lambda: 0, flush=False, brokers=3, voters=3, min_in_sync=2
        )
        self.hosts = {number: self.monitor.watcher(number, Medium()) for number in (1, 2, 3)}
        self.sizes: dict[tuple[int, str], int] = {}
        self.loop.close()

    def write(self, number: int, name: str, raw: bytes, *, synced: bool = True) -> None:
        path = f"/data/{name}/00000000000000000000.log"
        size = self.sizes.get((number, name), 0)
        self.hosts[number].on_write(path, size, raw)
        self.sizes[number, name] = size + len(raw)
        if synced:
            self.hosts[number].on_synced(path, size + len(raw))

    def agree(self, *records: bytes, epoch: int = 1) -> None:
        for offset, record in enumerate(records):
            for number in (1, 2, 3):
                self.write(
                    number,
                    "__cluster_metadata-0",
                    encode_batch([(None, record)], timestamp=1, base_offset=offset, leader_epoch=epoch),
                )


def test_a_change_counts_once_a_majority_has_it_on_stable_storage() -> None:
    watched = Watched()
    raw = encode_batch([(None, TOPIC_RECORD), (None, partition_record(1, 1, 2, 3))], timestamp=1, leader_epoch=1)
    watched.write(1, "__cluster_metadata-0", raw)
    watched.write(2, "__cluster_metadata-0", raw, synced=False)
    assert watched.monitor.metadata.partitions == {}
    watched.write(3, "__cluster_metadata-0", raw)
    assert watched.monitor.metadata.partitions[PLACE].leader == 1
    assert isinstance(watched.monitor._metadata, MetadataWatch)


def test_watermarks_beyond_the_isr_and_acknowledgments_by_too_few_are_seen() -> None:
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    watched.write(1, "ledger-0", data(0, b"a", epoch=4))
    watched.monitor.acknowledged(1, PLACE, 0, b"a")
    assert "I12" in watched.monitor.violations.pop()
    watched.write(2, "ledger-0", data(0, b"a", epoch=4))
    watched.monitor.acknowledged(1, PLACE, 0, b"a")
    assert watched.monitor.violations == []
    watched.monitor.advertised(PLACE, 1, 1)
    assert "broker 3 of the ISR holds 0 at most" in watched.monitor.violations.pop()


def test_an_acknowledgment_is_of_the_batch_that_its_sender_holds_not_of_another_leaders_copy() -> None:
    """A producer repeats a batch: the leader of the next epoch has not got it and writes it anew, the one after that finds the first copy."""
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2):
        watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    watched.write(3, "ledger-0", data(0, b"x", epoch=5))
    watched.write(3, "ledger-0", data(1, b"a", epoch=5))
    watched.monitor.acknowledged(2, PLACE, 0, b"a")
    assert watched.monitor.violations == []
    watched.monitor.acknowledged(3, PLACE, 1, b"a")
    assert "offset 1 was acknowledged by broker 3 while 1 held it" in watched.monitor.violations.pop()


def test_a_copy_of_another_epoch_at_the_same_offset_does_not_count_for_the_one_that_was_acknowledged() -> None:
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2):
        watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    watched.write(3, "ledger-0", data(0, b"a", epoch=5))
    watched.monitor.acknowledged(3, PLACE, 0, b"a")
    assert "offset 0 was acknowledged by broker 3 while 1 held it" in watched.monitor.violations.pop()
    watched.monitor.acknowledged(1, PLACE, 0, b"a")
    assert watched.monitor.violations == []


def test_two_leaders_of_one_epoch_and_a_leader_without_committed_data_are_seen() -> None:
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
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


def test_a_leader_that_loses_its_disk_is_judged_by_what_it_held_until_then() -> None:
    """Its last answer may arrive when its disk is empty already."""
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2):
        watched.write(number, "ledger-0", data(0, b"a", epoch=3))
    committed = watched.monitor.committed.setdefault(PLACE, CommittedLog())
    committed.extend(watched.hosts[2].log(PLACE), 1)
    watched.monitor.lost_data(1, Medium())
    watched.monitor.advertised(PLACE, 1, 1)
    assert [each for each in watched.monitor.violations if "I11" in each] == []


def test_a_leader_that_never_held_what_was_committed_is_seen_when_it_loses_its_disk() -> None:
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    watched.write(2, "ledger-0", data(0, b"a", epoch=3))
    watched.monitor.committed.setdefault(PLACE, CommittedLog()).extend(watched.hosts[2].log(PLACE), 1)
    watched.monitor.lost_data(1, Medium())
    assert "broker 1 leads in epoch 4 without offset 0" in watched.monitor.violations.pop()


STATE_KEY = struct.pack(">hh", 0, 4) + b"bank"
ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 1, 2, 4


def coordinator_value(state: int, *partitions: int) -> bytes:
    """A value of the coordinator's log, version 0: producer 7 at epoch 5 with these partitions of the ledger."""
    places = struct.pack(">i", len(partitions)) + b"".join(struct.pack(">i", each) for each in partitions)
    topics = struct.pack(">ih", 1, 6) + b"ledger" + places if partitions else struct.pack(">i", 0)
    return struct.pack(">hqhib", 0, 7, 5, 1000, state) + topics + struct.pack(">qq", 1, 1)


def commit_and_go_on(watched: Watched, hosts: int) -> None:
    """On so many hosts: the producer's first transaction is committed, its next one, of the same epoch, is open."""
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
    ("deposed", "commit", "decided_on", "fine"),
    [(True, True, 2, True), (False, True, 2, False), (True, False, 2, False), (True, True, 1, False)],
)
def test_a_marker_of_the_past_is_in_order_where_its_leader_was_deposed_meanwhile(
    *, deposed: bool, commit: bool, decided_on: int, fine: bool
) -> None:
    """The coordinator runs the next transaction already; a paused leader writes the last one's marker."""
    watched = Watched()
    change = (change_record(2, 2, 3),) if deposed else ()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3), *change)
    commit_and_go_on(watched, decided_on)
    watched.write(1, "ledger-0", marker(0, commit=commit))
    found = [each for each in watched.monitor.violations if "I14" in each]
    assert (found == []) is fine
    assert ("marker appended by a deposed leader" in watched.monitor.counters) is fine


def open_record() -> bytes:
    """Of the transaction that the producer has open."""
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
    ("held", "fine"), [((7, 5, True, PLACE), True), ((7, 5, False, PLACE), False), ((7, 4, True, PLACE), False)]
)
def test_only_the_very_marker_that_was_held_back_may_end_the_next_classic_transaction(
    *, held: MarkerKey, fine: bool
) -> None:
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    commit_and_go_on(watched, 2)
    watched.write(1, "ledger-0", open_record())
    watched.monitor.late_markers[held] = None
    watched.write(1, "ledger-0", marker(1, commit=True))
    assert (watched.monitor.violations == []) is fine
    assert (watched.monitor.ended_late == {b"v": None}) is fine


@pytest.mark.parametrize("coordinator", [0, 1])
def test_a_decision_that_nobody_else_has_yet_does_not_hide_the_one_that_a_late_marker_is_of(coordinator: int) -> None:
    """Of the coordinator of that time, which has been cut off, or of its successor; the next transaction is open either way."""
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    commit_and_go_on(watched, 2)
    lonely = encode_batch(
        [(STATE_KEY, coordinator_value(PREPARE_COMMIT, 0))], timestamp=1, base_offset=3, leader_epoch=coordinator
    )
    watched.write(2 + coordinator, "__transaction_state-0", lonely)
    watched.write(1, "ledger-0", open_record())
    watched.monitor.late_markers[7, 5, True, PLACE] = None
    watched.write(1, "ledger-0", marker(1, commit=True))
    assert watched.monitor.violations == []
    assert watched.monitor.ended_late == {b"v": None}


def test_a_decision_that_nobody_else_has_yet_excuses_no_marker() -> None:
    watched = Watched()
    watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    watched.write(
        1, "__transaction_state-0", encode_batch([(STATE_KEY, coordinator_value(PREPARE_COMMIT, 0))], timestamp=1)
    )
    watched.write(1, "ledger-0", open_record())
    watched.monitor.late_markers[7, 5, True, PLACE] = None
    watched.write(1, "ledger-0", marker(1, commit=True))
    assert "decided on 1 brokers, not 2" in watched.monitor.violations.pop()
