"""Final reads after the faults: all partitions are read to their end in every way, and the responses must agree with
the files.
"""

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tests.sim.history import OK, READ_COMMITTED, READ_UNCOMMITTED
from tests.sim.options.tenants import ADMIN
from tests.sim.workloads.readers import MAX_TIMESTAMP, Poller, Reader
from tests.sim.world import TABLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.sim.checkers.visibility import PartitionModel
    from tests.sim.history import Partition
    from tests.sim.workloads.session_reader import SessionReader
    from tests.sim.world import World

T = TypeVar("T")
DISTURBED_MAX: Final = 20


class FinalPoller(Poller):
    """Poller of the topics of all tenants."""

    user = ADMIN


class FinalReader(Reader):
    """Reader of the topics of all tenants."""

    user = ADMIN


async def read_everything(world: "World", session_reader: "SessionReader") -> list[str]:
    """Read everything and return the findings."""
    findings = []
    if world.options.brokers == 1:
        findings = [
            f"L1 the fetch session does not get to the end: {problem}" for problem in await session_reader.catch_up()
        ]
    poller = FinalPoller(world, "final-poller")
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        findings += await _read_all(world, poller, isolation)
    findings += await _look_up_times(world, poller)
    poller.close()
    return findings


async def _read_all(world: "World", poller: Poller, isolation: int) -> list[str]:
    findings = []
    reader = FinalReader(world, f"final-{isolation}", isolation)
    for partition in world.written:
        operation = await undisturbed(world, partition, partial(poller.poll_until, partition, isolation))
        end = _end_of(world, partition)
        if operation.outcome != OK or operation.result_offset != end:
            findings.append(
                f"I9 at rest: isolation {isolation} of {partition} ends at {operation.result_offset}, the log at "
                f"{end}, error {operation.error}"
            )
        if not await reader.read_to(partition, end):
            findings.append(
                f"L1 the final read of {partition} (isolation {isolation}) stays at {reader.positions[partition]} "
                f"of {end}"
            )
    reader.close()
    return findings


async def _look_up_times(world: "World", poller: Poller) -> list[str]:
    findings = []
    rng = world.rng
    for partition, model in world.monitor.partitions.items():
        times = [written for _, _, written in model.timestamps]
        if not times or partition[0] == TABLE:  # compaction may have removed the first record
            continue
        for timestamp in (rng.choice(times), rng.randint(min(times) - 1, max(times) + 1)):
            offset, _ = await _look_up(world, poller, partition, timestamp)
            expected = _model_of(world, partition).offset_for_time(timestamp)
            if offset != expected:
                findings.append(f"I3 {partition}: offset {offset} for time {timestamp}, a scan gives {expected}")
        offset, newest = await _look_up(world, poller, partition, MAX_TIMESTAMP)
        current = _model_of(world, partition)
        largest = max(written for _, _, written in current.timestamps)
        if newest != largest or current.timestamp_at(offset) != newest:
            findings.append(f"I3 {partition}: maximum timestamp {newest} at {offset}, a scan gives {largest}")
    return findings


async def _look_up(world: "World", poller: Poller, partition: "Partition", timestamp: int) -> tuple[int, int]:
    return await undisturbed(world, partition, lambda _: poller.look_up(partition, timestamp))


async def undisturbed(world: "World", partition: "Partition", query: "Callable[[int], Awaitable[T]]") -> T:
    """Return the result of `query` from a time without appends.

    A delayed request may still arrive, and a marker may be retried. `query` receives the log end offset.
    """
    for _ in range(DISTURBED_MAX):
        end = _end_of(world, partition)
        operation = await query(end)
        if _end_of(world, partition) == end:
            break
    return operation


def _model_of(world: "World", partition: "Partition") -> "PartitionModel":
    return world.monitor.log(partition).model()


def _end_of(world: "World", partition: "Partition") -> int:
    return _model_of(world, partition).end
