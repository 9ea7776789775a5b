"""When all is quiet: everything is read to its end, in every way there is, and the answers agree with the files."""

from typing import TYPE_CHECKING

from tests.sim.history import OK, READ_COMMITTED, READ_UNCOMMITTED
from tests.sim.workloads.readers import MAX_TIMESTAMP, Poller, Reader

if TYPE_CHECKING:
    from tests.sim.workloads.session_reader import SessionReader
    from tests.sim.world import World


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
    monitor = world.monitor
    reader = Reader(world, f"final-{isolation}", isolation)
    for partition in world.partitions:
        end = monitor.partitions[partition].end if partition in monitor.partitions else 0
        answer = await poller.poll_until(partition, isolation, end)
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
        if not times:
            continue
        for asked in (rng.choice(times), rng.randint(min(times) - 1, max(times) + 1)):
            found, _ = await poller.look_up(partition, asked)
            if found != model.offset_for_time(asked):
                findings.append(
                    f"I3 {partition}: offset {found} for time {asked}, a scan gives {model.offset_for_time(asked)}"
                )
        found, newest = await poller.look_up(partition, MAX_TIMESTAMP)
        if newest != max(times) or model.timestamp_at(found) != newest:
            findings.append(f"I3 {partition}: maximum timestamp {newest} at {found}, a scan gives {max(times)}")
    return findings
