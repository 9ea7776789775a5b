"""``make floods``: what floods leave in one broker's memory, and how a well-behaved client is served meanwhile.

Each flood goes over raw connections to a broker process of its own: first until it is refused, then as much again. Exit code 1 when one
was not refused, left more behind than it may, or when the well-behaved client was refused anything.
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
"""Requests of one connection that wait for their answer: below `odradek.max.in.flight.requests`."""
GROWTH_MIB_MAX = 128
"""What any of the floods may leave behind."""
AFTER_MIB_MAX = 24
"""By how much the broker may still grow while everything is refused: buffers, and what the allocator does not give back."""
READY_S = 60.0
ANSWER_S = 30.0
PAUSE_S = 0.02
WARM_UP = 20
"""Times that the witness acts before its times count."""
MIB = 2**20
SETTINGS = (
    "listeners=PLAINTEXT://127.0.0.1:0",
    f"offsets.topic.num.partitions={SHARDS}",
    f"transaction.state.log.num.partitions={SHARDS}",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "group.initial.rebalance.delay.ms=0",
    "odradek.log.level=warning",
)
MY_PRODUCER = 7
WITNESS_SHARD = SHARDS - 1


class Broker:
    """One broker process with nothing in it; `command` says how it is started."""

    def __init__(self, directory: Path, command: Callable[..., BrokerCommand] = BrokerCommand) -> None:
        config = directory / "broker.properties"
        config.write_text("\n".join((f"log.dirs={directory / 'data'}", *SETTINGS)))
        self._lifeline = Lifeline()
        self._process = BrokerProcess(command(1, config, directory / "broker.log", lifeline=self._lifeline.reader))

    async def ready(self) -> None:
        while not await asyncio.to_thread(self._says_ready):
            pass

    def _says_ready(self) -> bool:
        if not has_ended(self._process.fileno(), READY_S):  # readable, as a pidfd is at the end
            raise TimeoutError("the broker does not start")
        return self._process.is_ready()

    async def connect(self, client_id: str) -> RawClient:
        host, _, port = self._process.endpoint.rpartition(":")
        return await RawClient.connect(host, int(port), client_id=client_id)

    @property
    def resident_mib(self) -> float:
        status = Path(f"/proc/{self._process.identity.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def stop(self) -> int:
        code = self._process.stop()
        self._lifeline.close()
        return code


@dataclass
class Witness:
    """A well-behaved client: commits an offset and produces, again and again, and notes how long each pair took."""

    raw: RawClient
    took_ms: list[float] = field(default_factory=list)
    number: int = 0
    group: str = next(names("mine", WITNESS_SHARD))
    transactional_id: str = next(names("mine", WITNESS_SHARD))

    async def prepare(self) -> None:
        topic = CreatableTopic(TOPIC, num_partitions=TOPIC_PARTITIONS, replication_factor=1)
        made = await self.raw.call(CreateTopicsRequest([topic], timeout_ms=30_000), 5, timeout=ANSWER_S)
        assert made.topics[0].error_code == ErrorCode.NONE, made.topics[0]
        for kind, key in ((0, self.group), (1, self.transactional_id)):
            found = await self.raw.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
            assert found.coordinators[0].error_code == ErrorCode.NONE
        await self._until_served()
        self.took_ms.clear()

    async def _until_served(self) -> None:
        """Coordinators load what there is, a moment after the topics have been made."""
        asked = ((commit(self.group, [0]), COMMIT_V, committed), (init(self.transactional_id), INIT_V, error_code))
        async with asyncio.timeout(ANSWER_S):
            for request, version, outcome in asked:
                while True:
                    if outcome(await self.raw.call(request, version)) == "NONE":
                        break
                    await asyncio.sleep(PAUSE_S)

    async def act(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await self.raw.call(commit(self.group, [0], self.number), COMMIT_V, timeout=ANSWER_S)
        assert committed(answer) == "NONE", answer
        answer = await self.raw.call(produce(MY_PRODUCER, self.number), PRODUCE_V, timeout=ANSWER_S)
        assert produced(answer) == "NONE", answer
        self.number += 1
        self.took_ms.append((loop.time() - began) * 1_000)

    async def act_until(self, end: asyncio.Event) -> None:
        while not end.is_set():
            await self.act()
            await asyncio.sleep(PAUSE_S)


@dataclass
class Report:
    """Of one flood. `outcomes`: how many answers said what, until the first refusals and after them."""

    flood: Flood
    before_mib: float
    limit_mib: float = 0
    after_mib: float = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    took_ms: list[float] = field(default_factory=list)
    seconds: float = 0

    @property
    def taken(self) -> int:
        return sum(self.outcomes.get(outcome, 0) for outcome in self.flood.taken)

    def faults(self) -> list[str]:
        """What is not as it must be, in words."""
        name, said = self.flood.name, []
        strange = self.outcomes.keys() - {*self.flood.taken, *self.flood.passing, self.flood.refusal}
        if strange:
            said.append(f"{name}: answered {sorted(strange)}")
        if not self.outcomes.get(self.flood.refusal):
            said.append(f"{name}: never refused")
        if self.taken > self.flood.limit:
            said.append(f"{name}: {self.taken:,} were taken, {self.flood.limit:,} may be")
        if self.after_mib - self.before_mib > GROWTH_MIB_MAX:
            said.append(f"{name}: {self.after_mib - self.before_mib:.0f} MiB are left behind, {GROWTH_MIB_MAX} may be")
        if self.after_mib - self.limit_mib > AFTER_MIB_MAX:
            said.append(f"{name}: grows by {self.after_mib - self.limit_mib:.0f} MiB while everything is refused")
        return said


async def measure(broker: Broker, witness: Witness, flood: Flood) -> Report:
    """The flood until it has been refused for the first time, then as many requests again."""
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
            async for answer in pour(clients, requests, flood, flood.limit + CONNECTIONS * IN_FLIGHT):
                report.outcomes[answer] = report.outcomes.get(answer, 0) + 1
            setattr(report, phase, broker.resident_mib)
    finally:
        end.set()
        await acting  # raises what was refused to it
        for client in clients:
            client.close()
    report.seconds = asyncio.get_running_loop().time() - began
    report.took_ms = list(witness.took_ms)
    return report


async def pour(clients: list[RawClient], requests: Iterator[Message], flood: Flood, count: int) -> AsyncIterator[str]:
    """What `count` requests are answered, so many at a time on each connection."""
    left = count
    while left > 0:
        sent = []
        for client in clients:
            for _ in range(min(IN_FLIGHT, left)):
                left -= 1
                sent.append(client.send(next(requests), flood.version))
        for answer in sent:
            yield flood.outcome(await asyncio.wait_for(answer, ANSWER_S))


async def measure_alone(flood: Flood) -> Report:
    """On a broker of its own."""
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
    """As it stands in docs/operations.md."""
    head = "| flood | limit | taken | refused | resident before, at the limit, after as much again (MiB) | the witness (ms) |"
    lines = [head, "|---|---|---|---|---|---|"]
    for report in reports:
        flood, took = report.flood, sorted(report.took_ms)
        rare = statistics.quantiles(took, n=100, method="inclusive")[98] if len(took) > 1 else took[0]
        refused = report.outcomes.get(flood.refusal, 0)
        lines.append(
            f"| {flood.name} | {flood.limited_by} | {report.taken:,} | {refused:,} {flood.refusal} | "
            f"{report.before_mib:.0f}, {report.limit_mib:.0f}, {report.after_mib:.0f} | "
            f"{statistics.median(took):.1f}, {rare:.1f}, {took[-1]:.1f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make floods", description=__doc__)
    parser.add_argument("--only", default="", help="only floods whose name has this in it")
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
