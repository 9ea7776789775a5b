"""Parts of a run: options, commit delays, delayed frames, the monitor, small limits, and rewritten producer epochs."""

from collections.abc import Iterator
from random import Random

import pytest

import odradek.coordinator.txn.service
import odradek.storage.producers.state
import odradek.storage.segment.segment
import odradek.storage.segment.segments
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.runtime.shard import EngineLimits
from odradek.simulation.environment.disk import DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from tests.sim.checkers.batches import read_batches
from tests.sim.checkers.coordinator_log import COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT, parse_entry
from tests.sim.faults.epoch_overflow import rewrite_epochs
from tests.sim.faults.injector import parse_end_txn, parse_markers
from tests.sim.faults.small_limits import CHOICES, EVICTION_IDLE_MS, TAILS, limited
from tests.sim.options import cluster_options as clusters
from tests.sim.options import run_options as single
from tests.sim.options.batch_options import DELIVERY_MS
from tests.sim.options.disk_options import DISK_KINDS
from tests.sim.options.run_options import FLUSH, KILL, LOOSE, generate_options
from tests.sim.watchers.commit_delays import CommitDelays
from tests.sim.watchers.monitor import Monitor
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch, encode_marker
from tests.support.raw_client import encode_request

STATE_KEY = bytes.fromhex("000000066d792d74786e")  # written by Kafka
ONGOING_V1 = bytes.fromhex(
    "000100000000000003e800050000ea6001020274030000000000000003000000018bcfe568000000018bcfe5680000"
)
ONGOING_V0 = bytes.fromhex(
    "000000000000000003e800050000ea6001000000010001740000000200000000000000030000018bcfe568000000018bcfe56800"
)


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    sim_loop = SimLoop(Random(1))
    yield sim_loop
    sim_loop.close()


def test_options_depend_only_on_the_seed() -> None:
    assert [generate_options(seed) for seed in range(20)] == [generate_options(seed) for seed in range(20)]
    assert len({generate_options(seed).describe() for seed in range(20)}) == 20
    assert {generate_options(seed, brokers=1).durability for seed in range(100)} == {KILL, FLUSH, LOOSE}
    assert {generate_options(seed).brokers for seed in range(100)} == {1, 3, 5}
    assert all(len(generate_options(seed).faults) >= 4 for seed in range(100))
    for options in map(generate_options, range(400)):  # every run has enough faults that are due early
        due = [fault.operations for fault in options.faults]
        options_module = single if options.brokers == 1 else clusters
        assert due == sorted(due)
        assert due[options_module.FAULTS_CERTAIN - 1] <= options_module.OPERATIONS_CERTAIN
    assert not any(
        fault.kind.startswith("power")
        for seed in range(100)
        if generate_options(seed).durability == KILL
        for fault in generate_options(seed).faults
    )


@pytest.mark.parametrize("version", [0, 1, 3, 4, 5])
def test_end_txn_frame_is_parsed_in_every_version(version: int) -> None:
    request = EndTxnRequest(transactional_id="bank", producer_id=1 << 40, producer_epoch=7, committed=True)
    frame = encode_request(request, version, 3, "client")
    assert parse_end_txn(frame) == ("bank", 1 << 40, 7, True, version)
    assert parse_end_txn(encode_request(AddPartitionsToTxnRequest(), 3, 3, "client")) is None


@pytest.mark.parametrize("version", [1, 2])
def test_marker_frames_are_parsed_in_every_version(version: int) -> None:
    topics = [WritableTxnMarkerTopic(name="ledger", partition_indexes=[0, 3]), WritableTxnMarkerTopic(name="t")]
    markers = [
        WritableTxnMarker(producer_id=number, producer_epoch=7, transaction_result=number == 1, topics=topics)
        for number in (1, 1 << 40)
    ]
    frame = encode_request(WriteTxnMarkersRequest(markers=markers), version, 3, "broker-1-markers")
    places = (("ledger", 0), ("ledger", 3))
    assert parse_markers(frame) == [(1, 7, True, places), (1 << 40, 7, False, places)]
    assert parse_markers(encode_request(EndTxnRequest(), 3, 3, "client")) == []


@pytest.mark.parametrize("value", [ONGOING_V0, ONGOING_V1])
def test_transaction_log_entry_written_by_kafka_is_parsed(value: bytes) -> None:
    entry = parse_entry(STATE_KEY, value)
    assert (entry.transactional_id, entry.producer_id, entry.producer_epoch, entry.state) == (
        "my-txn",
        1000,
        5,
        ONGOING,
    )
    assert entry.partitions == {("t", 0), ("t", 3)}
    assert (entry.timeout_ms, entry.started_ms) == (60_000, 1700000000000)


def test_rewritten_epochs_have_a_valid_checksum() -> None:
    medium = Medium()
    loop = SimLoop(Random(1))
    disk = SimDisk(medium, loop, Random(1), name="n", latency=DiskLatency())
    disk.make_directory("/data/__transaction_state-0")
    other = STATE_KEY.replace(b"my-txn", b"my-own")
    file = disk.open("/data/__transaction_state-0/00000000000000000000.log", create=True)
    file.write(0, encode_batch([(STATE_KEY, ONGOING_V1), (other, ONGOING_V1)], timestamp=1))
    file.sync_now()
    assert rewrite_epochs(medium, "/data", {"my-txn": 32_760}) == 1
    (batch,) = read_batches(medium.contents("/data/__transaction_state-0/00000000000000000000.log"), check_crc=True)
    epochs = [parse_entry(key, value).producer_epoch for key, value in batch.records if key is not None]
    assert epochs == [32_760, 5]
    loop.close()


def test_delayed_high_watermark_lags_and_never_decreases(loop: SimLoop) -> None:
    delays = CommitDelays(loop)
    advanced: list[int] = []
    delayed = delays("t", 0, advanced.append)
    delayed.acknowledgeable(3)
    delays.hold(("t", 0), 2.0)
    delayed.acknowledgeable(5)
    assert advanced == [3]
    delayed.close()
    restarted = delays("t", 0, advanced.append)  # the node restarts while the high watermark lags
    restarted.acknowledgeable(7)
    assert advanced == [3, 3]
    loop.call_later(3, loop.stop)
    loop.run_forever()
    assert advanced == [3, 3, 7]
    assert delays.committed(("t", 0)) == 7


class Watched:
    """Monitor of one disk, with the writes of a coordinator and a partition leader."""

    def __init__(self, loop: SimLoop, *, flush: bool = False) -> None:
        self.medium = Medium()
        self.disk = SimDisk(self.medium, loop, Random(1), name="n", latency=DiskLatency())
        self.delays = CommitDelays(loop)
        self.monitor = Monitor("/data", "t", self.delays, lambda: 0, flush=flush)
        self.disk.watchers.append(self.monitor.watcher(1, self.medium))
        self.positions: dict[str, int] = {}
        for name in ("t-0", "__transaction_state-0"):
            self.disk.make_directory(f"/data/{name}")

    def append(self, name: str, data: bytes) -> None:
        path = f"/data/{name}/00000000000000000000.log"
        self.disk.open(path, create=True).write(self.positions.get(name, 0), data)
        self.positions[name] = self.positions.get(name, 0) + len(data)

    def decide(self, offset: int, state: int, *, committed: bool = True) -> None:
        value = bytearray(ONGOING_V1)
        value[16] = state
        self.append("__transaction_state-0", encode_batch([(STATE_KEY, bytes(value))], timestamp=1, base_offset=offset))
        if committed:
            self.delays.committed_up_to(("__transaction_state", 0), offset + 1)

    def mark(self, *, commit: bool = True, epoch: int = 5) -> list[str]:
        self.append(
            "t-0",
            encode_marker(
                producer_id=1000,
                producer_epoch=epoch,
                coordinator_epoch=0,
                commit=commit,
                timestamp=1,
                base_offset=self.positions_end(),
            ),
        )
        return self.monitor.violations

    def positions_end(self) -> int:
        model = self.monitor.partitions.get(("t", 0))
        return model.end if model is not None else 0


def test_marker_after_committed_prepare_is_accepted(loop: SimLoop) -> None:
    watched = Watched(loop)
    watched.append(
        "t-0",
        encode_batch(
            [(None, b"v")], timestamp=1, producer_id=1000, producer_epoch=5, base_sequence=0, attributes=TRANSACTIONAL
        ),
    )
    assert watched.monitor.stable_bound(("t", 0), 1) == 0
    watched.decide(0, ONGOING)
    watched.decide(1, PREPARE_COMMIT)
    assert watched.mark() == []
    assert watched.monitor.stable_bound(("t", 0), 1) == 2
    assert watched.mark() == []
    assert watched.monitor.counters == {"marker retry": 1}
    watched.monitor.before_crash(1)
    assert watched.monitor.counters["kill between prepare and complete"] == 1
    watched.decide(2, COMPLETE_COMMIT)
    watched.monitor.reload(1, watched.medium)
    assert watched.positions_end() == 3


def test_marker_before_committed_prepare_is_reported(loop: SimLoop) -> None:
    watched = Watched(loop)
    watched.decide(0, PREPARE_COMMIT, committed=False)
    assert "is not committed" in watched.mark()[0]


def test_unflushed_prepare_is_not_committed_in_flush_runs(loop: SimLoop) -> None:
    watched = Watched(loop, flush=True)
    watched.decide(0, PREPARE_COMMIT)
    assert "is not committed" in watched.mark()[0]


def test_marker_without_matching_decision_is_reported(loop: SimLoop) -> None:
    assert "without any coordinator entry" in Watched(loop).mark()[0]
    for state, commit, epoch in ((ONGOING, True, 5), (PREPARE_COMMIT, False, 5), (PREPARE_COMMIT, True, 6)):
        watched = Watched(loop)
        watched.decide(0, state)
        assert watched.mark(commit=commit, epoch=epoch)


def test_limits_are_restored_after_a_run() -> None:
    before = odradek.storage.segment.segments.SEALED_INDEXES_LOADED_MAX
    with limited({"SEALED_INDEXES_LOADED_MAX": 1, "waiting_max": 3}):
        assert odradek.storage.segment.segments.SEALED_INDEXES_LOADED_MAX == 1
        assert vars(odradek.coordinator.txn.service)["EngineLimits"](wait_ms_max=5) == EngineLimits(5, waiting_max=3)
    assert before == odradek.storage.segment.segments.SEALED_INDEXES_LOADED_MAX
    assert vars(odradek.coordinator.txn.service)["EngineLimits"] is EngineLimits


def test_part_of_the_runs_has_failing_disks() -> None:
    generated = [generate_options(seed) for seed in range(200)]
    failing = [options for options in generated if any(fault.kind in DISK_KINDS for fault in options.faults)]
    assert 15 < len(failing) < 50
    for options in generated[:20]:
        without = generate_options(options.seed, disk_faults=False)
        assert [fault for fault in options.faults if fault.kind not in DISK_KINDS] == without.faults


def test_only_runs_whose_producers_expire_evict_producers() -> None:
    generated = [generate_options(seed) for seed in range(200)]
    evicting = [options for options in generated if "PRODUCERS_MAX" in options.limits]
    assert 15 < len(evicting) < 50
    assert all(options.producer_expiration_ms for options in evicting)
    assert 2 * DELIVERY_MS < EVICTION_IDLE_MS
    with limited(evicting[0].limits):
        assert odradek.storage.producers.state.EVICTION_IDLE_MS_MIN == EVICTION_IDLE_MS


def test_log_tail_is_generated_separately() -> None:
    """In part of the runs followers are served from files. The other generated options of a seed stay the same."""
    tails = [generate_options(seed).limits.get("RECENT_BYTES_MAX") for seed in range(40)]
    assert {None, *TAILS} == set(tails)
    assert max(TAILS) < odradek.storage.segment.segment.RECENT_BYTES_MAX
    assert sum(tail is not None for tail in tails) in range(12, 29)
    for seed in range(40):
        limits = {name: limit for name, limit in generate_options(seed).limits.items() if name in CHOICES}
        assert len(limits) in {0, len(CHOICES)}, seed
    with limited({"RECENT_BYTES_MAX": 0}):
        assert odradek.storage.segment.segment.RECENT_BYTES_MAX == 0
