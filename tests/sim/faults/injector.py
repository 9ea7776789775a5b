"""Injection of the faults that the options of a run list, each at its step."""

from typing import TYPE_CHECKING, Final

from tests.sim.faults.broker_faults import BrokerFaults
from tests.sim.faults.cluster_faults import ClusterFaults
from tests.sim.faults.fault import Fault
from tests.sim.history import Partition
from tests.sim.world import LateFrame

if TYPE_CHECKING:
    from tests.sim.world import World

END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
NEVER: Final = 1 << 60


class FaultInjector:
    """Inject due faults between two handles of the loop, by the length of the history."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.injected: list[Fault] = []
        self.disturbance_ms = 0
        self._due = list(world.options.faults)
        self._armed: list[tuple[int, Fault]] = []
        self._stopped = False
        alone = world.options.brokers == 1
        self._faults: BrokerFaults | ClusterFaults = (
            BrokerFaults(world, self._disturbed) if alone else ClusterFaults(world, self._disturbed)
        )
        world.loop.step_hook = self._on_step
        world.loop.step_hook_at = 0
        world.loop.network.on_late_delivery = self._on_late_delivery

    def stop(self) -> None:
        """Heal the cluster and inject no further faults."""
        self._stopped = True
        world = self.world
        world.loop.step_hook_at = NEVER
        world.loop.network.faults.clear()
        world.loop.network.blocked_until = 0.0
        world.cluster.commit_delays.release_all()
        world.cluster.disarm()
        left_behind = ""
        if isinstance(self._faults, ClusterFaults) and world.options.leave_behind:
            left_behind = self._faults.leave_behind(world.options.leave_behind).host
            state = "stopped" if world.options.leave_behind == "dead" else "isolated"
            world.count(f"one broker left {state}")
        world.loop.network.links.heal(except_host=left_behind)

    def _on_step(self) -> None:
        world = self.world
        operations, steps = len(world.history.operations), world.loop.steps
        while self._due and self._due[0].operations <= operations:
            fault = self._due.pop(0)
            self._armed.append((steps + fault.steps, fault))
            self._armed.sort(key=lambda armed: armed[0])
        while self._armed and self._armed[0][0] <= steps:
            self.inject(self._armed.pop(0)[1])
        # Without armed faults, the hook runs every 20 steps. An armed fault sets its exact step.
        world.loop.step_hook_at = min(steps + 20, self._armed[0][0] if self._armed else NEVER)

    def inject(self, fault: Fault) -> None:
        world = self.world
        self.injected.append(fault)
        world.count(f"fault {fault.kind}")
        world.loop.trace.add(world.loop.steps, world.loop.time(), "fault", fault)
        self._faults.inject(fault)

    def _disturbed(self, seconds: float) -> None:
        self.disturbance_ms += int(seconds * 1000)

    def _on_late_delivery(self, frame: bytes) -> None:
        world = self.world
        for producer_id, epoch, commit, partitions in parse_markers(frame):
            world.late_frames.append(LateFrame("", producer_id, epoch, commit, 0, world.history.clock, partitions))
            for partition in partitions:
                world.monitor.late_markers[producer_id, epoch, commit, partition] = None
        end_txn = parse_end_txn(frame)
        if end_txn is not None:
            transactional_id, producer_id, epoch, commit, version = end_txn
            world.late_frames.append(
                LateFrame(transactional_id, producer_id, epoch, commit, version, world.history.clock)
            )


def parse_end_txn(frame: bytes) -> tuple[str, int, int, bool, int] | None:
    """Return (transactional id, producer id, epoch, commit, version) of an EndTxn frame, or None for another frame.

    The frame is parsed by hand: exceptions of the checkers must not depend on the broker's decoder.
    """
    api_key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
    if api_key != END_TXN:
        return None
    position = 12
    client_id_size = int.from_bytes(frame[position : position + 2], "big", signed=True)
    position += 2 + max(0, client_id_size)
    if version >= 3:
        position += 1  # no tagged fields in the header
        size = frame[position] - 1
        position += 1
    else:
        size = int.from_bytes(frame[position : position + 2], "big")
        position += 2
    transactional_id = frame[position : position + size].decode()
    position += size
    producer_id = int.from_bytes(frame[position : position + 8], "big", signed=True)
    epoch = int.from_bytes(frame[position + 8 : position + 10], "big", signed=True)
    return transactional_id, producer_id, epoch, bool(frame[position + 10]), version


def parse_markers(frame: bytes) -> list[tuple[int, int, bool, tuple[Partition, ...]]]:
    """Return (producer id, epoch, commit, partitions) of each marker of a WriteTxnMarkers frame.

    All its versions are flexible. Return an empty list for another frame.
    """
    if int.from_bytes(frame[4:6], "big") != WRITE_TXN_MARKERS:
        return []
    transaction_versions = int.from_bytes(frame[6:8], "big") >= 2
    position = 14 + max(0, int.from_bytes(frame[12:14], "big", signed=True)) + 1
    count, position = _uvarint(frame, position)
    markers = []
    for _ in range(count - 1):
        producer_id = int.from_bytes(frame[position : position + 8], "big", signed=True)
        epoch = int.from_bytes(frame[position + 8 : position + 10], "big", signed=True)
        commit = bool(frame[position + 10])
        places: list[Partition] = []
        topics, position = _uvarint(frame, position + 11)
        for _ in range(topics - 1):
            size, position = _uvarint(frame, position)
            topic = frame[position : position + size - 1].decode()
            partitions, position = _uvarint(frame, position + size - 1)
            for _ in range(partitions - 1):
                places.append((topic, int.from_bytes(frame[position : position + 4], "big")))
                position += 4
            position += 1
        markers.append((producer_id, epoch, commit, tuple(places)))
        position += 4 + transaction_versions + 1
    return markers


def _uvarint(data: bytes, position: int) -> tuple[int, int]:
    shift = result = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
