"""When all is quiet: everything is read to its end, in every way there is, and the answers agree with the files."""

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tests.sim.history import OK, READ_COMMITTED, READ_UNCOMMITTED
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


async def read_everything(world: "World", session_reader: "SessionReader") -> list[str]:
    """Findings of the final reads."""
    findings = []
    if world.options.brokers == 1:
        findings = [f"L1 the fetch session does not get to the end: {left}" for left in await session_reader.catch_up()]
    poller = Poller(world, "final-poller")
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        findings += await _read_all(world, poller, isolation)
    findings += await _look_up_times(world, poller)
    poller.close()
    return findings


async def _read_all(world: "World", poller: Poller, isolation: int) -> list[str]:
    findings = []
    reader = Reader(world, f"final-{isolation}", isolation)
    for partition in world.written:
        answer = await undisturbed(world, partition, partial(poller.poll_until, partition, isolation))
        end = _end_of(world, partition)
        if answer.outcome != OK or answer.result_offset != end:
            findings.append(
                f"I9 at rest: isolation {isolation} of {partition} ends at {answer.result_offset}, the log at {end}, error {answer.error}"
            )
        if not await reader.read_to(partition, end):
            findings.append(
                f"L1 the final read of {partition} (isolation {isolation}) stays at {reader.positions[partition]} of {end}"
            )
    reader.close()
    return findings


async def _look_up_times(world: "World", poller: Poller) -> list[str]:
    findings = []
    rng = world.rng
    for partition, model in world.monitor.partitions.items():
        times = [each for _, _, each in model.timestamps]
        if not times or partition[0] == TABLE:  # what is the first may have been taken away
            continue
        for asked in (rng.choice(times), rng.randint(min(times) - 1, max(times) + 1)):
            found, _ = await _look_up(world, poller, partition, asked)
            expected = _model_of(world, partition).offset_for_time(asked)
            if found != expected:
                findings.append(f"I3 {partition}: offset {found} for time {asked}, a scan gives {expected}")
        found, newest = await _look_up(world, poller, partition, MAX_TIMESTAMP)
        now = _model_of(world, partition)
        largest = max(each for _, _, each in now.timestamps)
        if newest != largest or now.timestamp_at(found) != newest:
            findings.append(f"I3 {partition}: maximum timestamp {newest} at {found}, a scan gives {largest}")
    return findings


async def _look_up(world: "World", poller: Poller, partition: "Partition", asked: int) -> tuple[int, int]:
    return await undisturbed(world, partition, lambda _: poller.look_up(partition, asked))


async def undisturbed(world: "World", partition: "Partition", ask: "Callable[[int], Awaitable[T]]") -> T:
    """What is answered while nothing is written: a frame that was held up may still come, and a marker be repeated. `ask` is told where the log ends."""
    for _ in range(DISTURBED_MAX):
        end = _end_of(world, partition)
        answer = await ask(end)
        if _end_of(world, partition) == end:
            break
    return answer


def _model_of(world: "World", partition: "Partition") -> "PartitionModel":
    return world.monitor.log(partition).model()


def _end_of(world: "World", partition: "Partition") -> int:
    return _model_of(world, partition).end
