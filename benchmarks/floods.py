"""``make floods``: measure the memory that floods of requests occupy in a broker, and the service of another client
meanwhile.

Each flood uses raw connections to its own broker process. It sends requests until they are refused, and then as many
again. Exit code 1 if a flood was not refused, if it occupied too much memory, or if the other client (the witness)
received an error.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks.flood_requests import (
    COMMIT_V,
    INIT_V,
    PRODUCE_V,
    SHARDS,
    TOPIC,
    TOPIC_PARTITIONS,
    Flood,
    Limits,
    commit,
    committed,
    error_code,
    floods,
    init,
    names,
    produce,
    produced,
)
from odradek.local.processes import BrokerCommand, BrokerProcess, Lifeline, has_ended
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from odradek.protocol.schema import Message

CONNECTIONS = 4
IN_FLIGHT = 32
"""Requests without a response, per connection. It is below `odradek.max.in.flight.requests`."""
GROWTH_MIB_MAX = 128
"""Maximum growth of a broker by one flood, in MiB."""
AFTER_MIB_MAX = 24
"""Maximum growth of a broker while all requests are refused, in MiB: buffers, and memory that the allocator keeps."""
READY_S = 60.0
RESPONSE_S = 30.0
PAUSE_S = 0.02
WARM_UP = 20
"""Warm-up operations of the witness, which are not measured."""
MIB = 2**20
SETTINGS = (
    "listeners=PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name=PLAINTEXT",
    f"offsets.topic.num.partitions={SHARDS}",
    f"transaction.state.log.num.partitions={SHARDS}",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "group.initial.rebalance.delay.ms=0",
    "odradek.log.level=warning",
)
WITNESS_PRODUCER = 7
WITNESS_SHARD = SHARDS - 1


class Broker:
    """Process of an empty broker. `command` starts it."""

    def __init__(
        self, directory: Path, command: Callable[..., BrokerCommand] = BrokerCommand, settings: Sequence[str] = ()
    ) -> None:
        """Start the broker with SETTINGS and `settings`."""
        config = directory / "broker.properties"
        config.write_text("\n".join((f"log.dirs={directory / 'data'}", *SETTINGS, *settings)))
        self._lifeline = Lifeline()
        self._process = BrokerProcess(command(1, config, directory / "broker.log", lifeline=self._lifeline.reader))

    async def ready(self) -> None:
        while not await asyncio.to_thread(self._is_ready):
            pass

    def _is_ready(self) -> bool:
        if not has_ended(
            self._process.fileno(), READY_S
        ):  # the output pipe is readable when the broker writes to it or terminates
            raise TimeoutError(f"the broker did not start within {READY_S:.0f} s")
        return self._process.is_ready()

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self._process.endpoint.rpartition(":")
        return host, int(port)

    async def connect(self, client_id: str) -> RawClient:
        return await RawClient.connect(*self.address, client_id=client_id)

    @property
    def resident_mib(self) -> float:
        return self._memory_mib("VmRSS:")

    @property
    def peak_mib(self) -> float:
        """Maximum of `resident_mib` since the start of the broker, or since `reset_peak`."""
        return self._memory_mib("VmHWM:")

    def reset_peak(self) -> None:
        Path(f"/proc/{self._process.identity.pid}/clear_refs").write_text("5")

    def _memory_mib(self, name: str) -> float:
        status = Path(f"/proc/{self._process.identity.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) / 1024

    def stop(self) -> int:
        code = self._process.stop()
        self._lifeline.close()
        return code


@dataclass
class Witness:
    """Client that repeatedly commits an offset and produces a record, and measures each pair."""

    raw: RawClient
    took_ms: list[float] = field(default_factory=list)
    number: int = 0
    group: str = next(names("mine", WITNESS_SHARD))
    transactional_id: str = next(names("mine", WITNESS_SHARD))

    async def prepare(self) -> None:
        topic = CreatableTopic(TOPIC, num_partitions=TOPIC_PARTITIONS, replication_factor=1)
        made = await self.raw.call(CreateTopicsRequest([topic], timeout_ms=30_000), 5, timeout=RESPONSE_S)
        assert made.topics[0].error_code == ErrorCode.NONE, made.topics[0]
        for kind, key in ((0, self.group), (1, self.transactional_id)):
            found = await self.raw.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
            assert found.coordinators[0].error_code == ErrorCode.NONE
        await self._until_served()
        self.took_ms.clear()

    async def _until_served(self) -> None:
        """Wait until the coordinators have loaded their partitions."""
        probes = ((commit(self.group, [0]), COMMIT_V, committed), (init(self.transactional_id), INIT_V, error_code))
        async with asyncio.timeout(RESPONSE_S):
            for request, version, outcome in probes:
                while True:
                    if outcome(await self.raw.call(request, version)) == "NONE":
                        break
                    await asyncio.sleep(PAUSE_S)

    async def act(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await self.raw.call(commit(self.group, [0], self.number), COMMIT_V, timeout=RESPONSE_S)
        assert committed(response) == "NONE", response
        response = await self.raw.call(produce(WITNESS_PRODUCER, self.number), PRODUCE_V, timeout=RESPONSE_S)
        assert produced(response) == "NONE", response
        self.number += 1
        self.took_ms.append((loop.time() - began) * 1_000)

    async def act_until(self, end: asyncio.Event) -> None:
        while not end.is_set():
            await self.act()
            await asyncio.sleep(PAUSE_S)


@dataclass
class Report:
    """Measurements of one flood. `outcomes` is the number of responses by error."""

    flood: Flood
    before_mib: float
    limit_mib: float = 0
    after_mib: float = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    took_ms: list[float] = field(default_factory=list)
    seconds: float = 0

    @property
    def accepted(self) -> int:
        return sum(self.outcomes.get(outcome, 0) for outcome in self.flood.accepted)

    def faults(self) -> list[str]:
        """Return the violated conditions as text."""
        name, found = self.flood.name, []
        unexpected = self.outcomes.keys() - {*self.flood.accepted, *self.flood.passing, self.flood.refusal}
        if unexpected:
            found.append(f"{name}: unexpected responses {sorted(unexpected)}")
        if not self.outcomes.get(self.flood.refusal):
            found.append(f"{name}: no request was refused")
        if self.accepted > self.flood.limit:
            found.append(f"{name}: {self.accepted:,} requests were accepted, the limit is {self.flood.limit:,}")
        if self.after_mib - self.before_mib > GROWTH_MIB_MAX:
            found.append(f"{name}: grew by {self.after_mib - self.before_mib:.0f} MiB, the limit is {GROWTH_MIB_MAX}")
        if self.after_mib - self.limit_mib > AFTER_MIB_MAX:
            found.append(f"{name}: grew by {self.after_mib - self.limit_mib:.0f} MiB while all requests were refused")
        return found


async def measure(broker: Broker, witness: Witness, flood: Flood) -> Report:
    """Run the flood up to its limit, and then as many requests again. Measure memory and the witness."""
    for _ in range(WARM_UP):
        await witness.act()
    witness.took_ms.clear()
    report = Report(flood, broker.resident_mib)
    began = asyncio.get_running_loop().time()
    clients = [await broker.connect(f"flood-{number}") for number in range(CONNECTIONS)]
    end = asyncio.Event()
    acting = asyncio.create_task(witness.act_until(end))
    try:
        requests = flood.requests()
        for phase in ("limit_mib", "after_mib"):
            async for outcome in send_all(clients, requests, flood, flood.limit + CONNECTIONS * IN_FLIGHT):
                report.outcomes[outcome] = report.outcomes.get(outcome, 0) + 1
            setattr(report, phase, broker.resident_mib)
    finally:
        end.set()
        await acting  # raises if the witness received an error
        for client in clients:
            client.close()
    report.seconds = asyncio.get_running_loop().time() - began
    report.took_ms = list(witness.took_ms)
    return report


async def send_all(
    clients: list[RawClient], requests: Iterator[Message], flood: Flood, count: int
) -> AsyncIterator[str]:
    """Send `count` requests, IN_FLIGHT at a time per connection. Yield the outcome of each response."""
    left = count
    while left > 0:
        sent = []
        for client in clients:
            for _ in range(min(IN_FLIGHT, left)):
                left -= 1
                sent.append(client.send(next(requests), flood.version))
        for response in sent:
            yield flood.outcome(await asyncio.wait_for(response, RESPONSE_S))


async def measure_alone(flood: Flood) -> Report:
    """Measure one flood on a new broker."""
    with tempfile.TemporaryDirectory(prefix="odradek-flood-") as directory:
        broker = Broker(Path(directory))
        try:
            await broker.ready()
            witness = Witness(await broker.connect("witness"))
            await witness.prepare()
            report = await measure(broker, witness, flood)
            witness.raw.close()
            return report
        finally:
            broker.stop()


def table(reports: Sequence[Report]) -> str:
    """Render the table of docs/operations.md."""
    memory = "resident memory before, at the limit, after as many requests again (MiB)"
    head = f"| flood | limit | accepted | refused | {memory} | witness (ms) |"
    lines = [head, "|---|---|---|---|---|---|"]
    for report in reports:
        flood, took = report.flood, sorted(report.took_ms)
        rare = statistics.quantiles(took, n=100, method="inclusive")[98] if len(took) > 1 else took[0]
        refused = report.outcomes.get(flood.refusal, 0)
        lines.append(
            f"| {flood.name} | {flood.limited_by} | {report.accepted:,} | {refused:,} {flood.refusal} | "
            f"{report.before_mib:.0f}, {report.limit_mib:.0f}, {report.after_mib:.0f} | "
            f"{statistics.median(took):.1f}, {rare:.1f}, {took[-1]:.1f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make floods", description=__doc__)
    parser.add_argument("--only", default="", help="run only floods whose name contains this text")
    options = parser.parse_args()
    reports = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for flood in floods(Limits()):
            if options.only in flood.name:
                reports.append(runner.run(measure_alone(flood)))
                print(f"{flood.name}: {reports[-1].seconds:.1f} s", file=sys.stderr)
    print(table(reports))
    faults = [fault for report in reports for fault in report.faults()]
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
