"""Collection of the input of the checkers at the end of a run, and of the counters of rare events."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.sim.checkers.coordinator_log import read_entries
from tests.sim.checkers.evidence import Evidence, Replicas, SnapshotRow
from tests.sim.checkers.recovery import read_snapshot
from tests.sim.checkers.replicas import end_of, read_watermarks
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.cluster.node_config import ROOT, WATERMARKS
from tests.sim.evidence.groups import collect_groups
from tests.sim.faults.fault import CLOCK_KINDS
from tests.sim.history import END, FETCH, INIT, LIST, OK, PRODUCE, Operation, Partition
from tests.sim.options.disk_options import DISK_FULL, DISK_OPERATION
from tests.sim.options.read_options import READ_KINDS
from tests.sim.world import COMPACTED, TABLE, TENANT_TOPICS, TOPIC, TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.sim.checkers.batches import Batch
    from tests.sim.cluster.host import Machine
    from tests.sim.faults.injector import FaultInjector
    from tests.sim.world import LateFrame, World

FETCH_SNAPSHOT: Final = 59
LEADERLESS_MS = 60_000
"""Time that several brokers may need to elect leaders after any fault. A later abort is a finding."""
FAULTS_THAT_DELAY = ("leadership", "cut_all", "disk_write", "disk_sync", DISK_OPERATION, DISK_FULL, *READ_KINDS)


@dataclass(frozen=True, slots=True)
class Described:
    """Producers and transactions by the Describe responses of the restarted brokers."""

    producers: dict[Partition, list[SnapshotRow]]
    transactions: dict[str, tuple[str, int, int]]


def collect(
    world: "World",
    injector: "FaultInjector",
    described: Described,
    findings: list[str],
    rest: dict[Partition, int],
    final: list[Operation],
) -> Evidence:
    """Read the files after the last, clean stop and return the evidence. Unreadable files are added to `findings`.

    `rest`: log end offsets of the equal replicas before the stop. `final`: the last OffsetFetch operations.
    """
    monitor, options = world.monitor, world.options
    partitions = {}
    for partition in world.written:
        model = partitions[partition] = PartitionModel.of(monitor.surviving_batches(partition))
        live = monitor.partitions.get(partition)
        if live is not None and live.end != model.end and options.brokers == 1:
            findings.append(f"I3 {partition}: the node wrote up to {live.end}, the files hold up to {model.end}")
    evidence = Evidence(
        history=world.history,
        partitions=partitions,
        coordinators={
            index: read_entries(monitor.surviving_batches((TRANSACTION_STATE, index))) for index in monitor.coordinators
        },
        late_frames=world.late_frames,
        written_at=monitor.written_at,
        ended_late=monitor.ended_late,
        compacted={place: monitor.compaction.retention_ms for place in world.written if place[0] == TABLE},
        left={place: left_of(world, place) for place in world.written if place[0] == TABLE},
        lossy=options.lossy,
        producers_expire=options.producer_expiration_ms > 0,
        evicts_producers="PRODUCERS_MAX" in options.limits,
        replicated=options.brokers > 1,
        scan_interval_ms=options.scan_interval_ms,
        disturbance_ms=injector.disturbance_ms
        + world.cluster.downtime_ms
        + _delayed_ms(injector)
        + (LEADERLESS_MS if options.brokers > 1 else 0),
        clock_jumped=any(fault.kind in CLOCK_KINDS for fault in injector.injected),
        described_producers=described.producers,
        # If transactional ids expire within the run, one may expire between the response and the end.
        described_transactions={} if options.ids_expire else described.transactions,
    )
    evidence.groups = collect_groups(world, final)
    findings += monitor.compaction.check_files()
    add_snapshots(world, evidence, findings)
    if options.brokers > 1:
        _add_replicas(world, evidence, rest)
    return evidence


def left_of(world: "World", partition: Partition) -> PartitionModel:
    """Return a replay of the batches that compaction has left in the authoritative log."""
    return world.monitor.hosts[world.monitor.authoritative_host(partition)].log(partition).left()


def _add_replicas(world: "World", evidence: Evidence, rest: dict[Partition, int]) -> None:
    """Add the logs of all hosts, each with its checkpointed high watermark.

    Remaining hosts must hold everything below `rest`.
    """
    monitor, cluster = world.monitor, world.cluster
    remaining = [machine.number for machine in cluster.remaining]
    for place, state in monitor.metadata.partitions.items():
        if place[0] not in {TOPIC, *TENANT_TOPICS, *COMPACTED}:
            continue
        numbers = [number for number in state.replicas if number in monitor.hosts]
        level = rest.get(place, 0)
        logs = {number: monitor.surviving_batches(place, number) for number in numbers}
        marks = {number: committed_on(cluster.machine(number), place, logs[number]) for number in numbers}
        committed = {number: max(marks[number], level if number in remaining else 0) for number in numbers}
        evidence.replicas.append(Replicas(f"{place[0]}-{place[1]}", logs, committed))


def committed_on(machine: "Machine", place: Partition, log: "Sequence[Batch]") -> int:
    """Return the checkpointed high watermark of the partition on the machine.

    A checkpoint from before the last power cut may exceed the log; its broker corrects that at the next start. A
    checkpoint written since must not exceed the log.
    """
    entry = machine.medium.entry(WATERMARKS)
    if entry is None:
        return 0
    mark = read_watermarks(machine.medium.contents(WATERMARKS).decode()).get(place, 0)
    return min(mark, end_of(log)) if entry is machine.watermarks_at_loss else mark


def _delayed_ms(injector: "FaultInjector") -> int:
    return sum(int(fault.seconds * 1000) + 1000 for fault in injector.injected if fault.kind in FAULTS_THAT_DELAY)


def add_snapshots(world: "World", evidence: Evidence, findings: list[str]) -> None:
    for partition in world.written:
        machine = world.cluster.machine(world.monitor.authoritative_host(partition))
        medium = machine.medium
        path = f"{ROOT}/{partition[0]}-{partition[1]}"
        batches = world.monitor.surviving_batches(partition)
        names = [name for name in sorted(medium.directory(path).live) if name.endswith(".snapshot")]
        for name in names:
            offset = int(name.removesuffix(".snapshot"))
            rows = read_snapshot(medium.contents(f"{path}/{name}"))
            if rows is None:  # an older snapshot, or one of a removed machine, may have a flipped bit
                if name == names[-1] and not machine.gone:
                    findings.append(f"I16 {path}/{name} is not a valid snapshot after a clean stop")
                continue
            if partition[0] == TABLE and offset < end_of(batches):
                continue  # compaction may have run before an older snapshot of the table was written again
            evidence.snapshots.setdefault(partition, []).append((offset, rows))
            evidence.snapshot_models[partition, offset] = PartitionModel.of(
                batch for batch in batches if batch.base_offset < offset
            )


def count_reached(world: "World", evidence: Evidence) -> None:
    """Add the rare events that a campaign has to reach to the counters of the run."""
    monitor, history = world.monitor, world.history
    for name, count in {
        **monitor.counters,
        **monitor.groups.written.counters,
        **world.cluster.counters,
        **evidence.counters,
    }.items():
        world.count(name, count)
    world.count("metadata snapshot fetched", world.loop.network.requests[FETCH_SNAPSHOT])
    spans: dict[str, list[tuple[int, int]]] = {}
    for operation in history.of(INIT, END):
        if operation.transactional_id is not None:
            spans.setdefault(operation.transactional_id, []).append((operation.invoked, operation.completed))
    for transactional_id, clock in monitor.aborts_at:
        # No client requested the abort: the coordinator aborted on its own.
        if not any(invoked <= clock < completed for invoked, completed in spans.get(transactional_id, ())):
            world.count("time-out abort")
    for operation in history.of(PRODUCE):
        written_at = monitor.written_at.get(operation.values[0], operation.invoked)
        if operation.outcome == OK and written_at < operation.invoked:
            world.count("duplicate sequence")
    for frame in world.late_frames:
        if frame.transactional_id and _was_delayed(world, frame):
            world.count("late EndTxn")
    world.count("reads", sum(1 for operation in history.of(FETCH, LIST) if operation.outcome == OK))


def _was_delayed(world: "World", frame: "LateFrame") -> bool:
    """Return True if the transaction had been ended by another request when the frame arrived."""
    identity = (frame.transactional_id, frame.producer_id, frame.producer_epoch)
    for operation in world.history.of(END, INIT):
        if operation.outcome != OK or operation.completed >= frame.clock:
            continue
        if operation.kind == INIT and operation.transactional_id == frame.transactional_id:
            return True
        if (operation.transactional_id, operation.producer_id, operation.producer_epoch) == identity:
            return True
    return False
