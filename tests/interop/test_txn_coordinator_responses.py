"""The transaction coordinator's decisions beside Apache Kafka's, request by request.

The same raw requests go to both brokers, right ones and wrong ones, of both generations. CONCURRENT_TRANSACTIONS is asked
again on both sides (Odradek waits where Kafka says it at once); every other answer must be the same: errors, and
identities once producer ids are numbered in the order in which they appear.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from odradek.local.local_cluster import LocalCluster
    from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.interop

TIMEOUT_S = 30
BUSY = ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
OTHER_PID = 987_654

SEEDS = range(4)
STEPS = 60
TOPIC = f"decisions-{time.time_ns():x}"


@dataclass(frozen=True)
class Step:
    """One request; producer id and epoch are relative to what the producer was told last."""

    what: str
    version: int
    other_pid: bool = False
    epoch: int = 0
    commit: bool = True
    partition: int = 0


@dataclass
class Side:
    """One broker, and what its producer was told."""

    client: RawClient
    transactional_id: str
    pid: int = -1
    epoch: int = -1
    numbers: dict[int, int] = field(default_factory=dict)

    def number(self, pid: int) -> int:
        return pid if pid < 0 else self.numbers.setdefault(pid, len(self.numbers))

    async def answer(self, step: Step) -> Any:
        """The answer that is not "busy", in words that both brokers can agree on."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            said = await getattr(self, step.what)(step)
            if not any(word in str(said) for word in BUSY):
                return said
            assert time.monotonic() < deadline, f"{step} is told {said} for ever"
            await asyncio.sleep(0.01)

    def claims(self, step: Step) -> tuple[int, int]:
        return OTHER_PID if step.other_pid else self.pid, max(self.epoch + step.epoch, 0)

    async def init(self, step: Step) -> Any:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        if step.version >= 3 and self.pid >= 0:
            request.producer_id, request.producer_epoch = self.claims(step)
        return self.told(await self.client.call(request, max(step.version, 1), timeout=TIMEOUT_S))

    async def end(self, step: Step) -> Any:
        pid, epoch = self.claims(step)
        request = EndTxnRequest(self.transactional_id, pid, epoch, step.commit)
        return self.told(await self.client.call(request, step.version, timeout=TIMEOUT_S))

    def told(self, response: Any) -> Any:
        error = ErrorCode(response.error_code).name
        if error == "NONE" and response.producer_id >= 0:
            self.pid, self.epoch = response.producer_id, response.producer_epoch
        return error, self.number(response.producer_id), response.producer_epoch

    async def add(self, step: Step) -> Any:
        pid, epoch = self.claims(step)
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[step.partition])]
        if step.version < 4:
            request = AddPartitionsToTxnRequest([], self.transactional_id, pid, epoch, topics)
        else:
            verify = step.what == "verify"
            only = AddPartitionsToTxnTransaction(self.transactional_id, pid, epoch, verify, topics)
            request = AddPartitionsToTxnRequest([only])
        response = await self.client.call(request, step.version, timeout=TIMEOUT_S)
        found = response.results_by_topic_v3_and_below
        for transaction in response.results_by_transaction:
            found = [*found, *transaction.topic_results]
        return ErrorCode(response.error_code).name, [
            (result.partition_index, ErrorCode(result.partition_error_code).name)
            for topic in found
            for result in topic.results_by_partition
        ]

    verify = add

    async def describe(self, step: Step) -> Any:
        request = DescribeTransactionsRequest([self.transactional_id])
        state = (await self.client.call(request, 0, timeout=TIMEOUT_S)).transaction_states[0]
        # Between Prepare and Complete the two need not be equally fast.
        if state.transaction_state.startswith("Prepare"):
            return BUSY[0]
        topics = [(topic.topic, sorted(topic.partitions)) for topic in state.topics]
        error = ErrorCode(state.error_code).name
        return error, state.transaction_state, self.number(state.producer_id), state.producer_epoch, topics


def steps(rng: Random) -> list[Step]:
    """A producer that mostly behaves, of either generation, and others that do not."""
    drawn = [Step("init", 0)]
    for _ in range(STEPS):
        what = rng.choices(["init", "add", "verify", "end", "describe"], [2, 6, 2, 8, 1])[0]
        version = {
            "init": [1, 3, 4],
            "add": [0, 1, 3, 5],
            "verify": [4, 5],
            "end": [1, 2, 4, 5, 5, 5],
            "describe": [0],
        }[what]
        drawn.append(
            Step(
                what,
                rng.choice(version),
                other_pid=rng.random() < 0.06,
                epoch=rng.choices([0, -1, 1, -2], [16, 4, 1, 1])[0],
                commit=rng.random() < 0.5,
                partition=rng.choices([0, 1, 9], [5, 4, 1])[0],
            )
        )
    return drawn


def inherits_a_classic_end(step: Step, answers: list[Any], last_end: Step | None) -> bool:
    """docs/decisions/0012: there Kafka takes a fenced producer's EndTxn for a retry of its classic successor's."""
    return (
        last_end is not None
        and last_end.version < 5
        and (step.what, step.version, step.epoch) == ("end", 5, -1)
        and answers[0][0] == "PRODUCER_FENCED"
        and answers[1][0] in {"NONE", "INVALID_TXN_STATE"}
    )


@asynccontextmanager
async def side(bootstrap: str, name: str) -> AsyncIterator[Side]:
    host, _, port = bootstrap.partition(":")
    client = await RawClient.connect(host, int(port))
    try:
        await coordinator_is_there(client, name)
        yield Side(client, name)
    finally:
        client.close()
        await asyncio.sleep(0)


NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def coordinator_is_there(client: RawClient, name: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found: Any = await client.call(
            FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4, timeout=TIMEOUT_S
        )
        # Found is not yet loaded: the partition answers for its ids only once it has read its log.
        asked = DescribeTransactionsRequest(transactional_ids=[name])
        state: Any = await client.call(asked, 0, timeout=TIMEOUT_S)
        if found.coordinators[0].error_code == 0 and state.transaction_states[0].error_code not in NOT_YET:
            return
        assert time.monotonic() < deadline, "no coordinator"
        await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def both(odradek_cluster: LocalCluster, kafka_broker: KafkaBroker) -> tuple[str, str]:
    addresses = (odradek_cluster.bootstrap, kafka_broker.bootstrap)
    for address in addresses:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(TIMEOUT_S)
    return addresses


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_same_requests_get_the_same_answers(both: tuple[str, str], seed: int) -> None:
    name = f"txn-{seed}-{time.time_ns():x}"
    history: list[Any] = []
    async with side(both[0], name) as ours, side(both[1], name) as kafkas:
        last_end: Step | None = None
        for step in steps(Random(seed)):
            answers = [await one.answer(step) for one in (ours, kafkas)]
            history.append((step, *answers))
            if not inherits_a_classic_end(step, answers, last_end):
                assert answers[0] == answers[1], "\n".join(map(str, history[-8:]))
            if step.what == "end" and answers[0][0] == "NONE":
                last_end = step


SINGLE = [
    ("half an identity", InitProducerIdRequest("x", 60_000, 5, -1), 4),
    ("half an identity without an id", InitProducerIdRequest(None, 60_000, -1, 5), 4),
    ("an empty id", InitProducerIdRequest("", 60_000), 4),
    ("no time-out", InitProducerIdRequest("x", 0), 4),
    ("too long a time-out", InitProducerIdRequest("x", 900_001), 4),
    ("too long a time-out, half an identity", InitProducerIdRequest("x", 900_001, 1, -1), 4),
    ("an unknown id ends", EndTxnRequest("unknown", 1, 1, True), 4),
    ("an unknown id ends, TV2", EndTxnRequest("unknown", 1, 1, True), 5),
    ("nobody ends", EndTxnRequest("", 1, 1, True), 5),
    ("an unknown state is asked for", ListTransactionsRequest(["Nonsense", "Dead"]), 2),
    ("a pattern that is none", ListTransactionsRequest(transactional_id_pattern="("), 2),
    ("a pattern that RE2 does not know", ListTransactionsRequest(transactional_id_pattern="(?=a)"), 2),
    ("a pattern that matches nothing", ListTransactionsRequest(transactional_id_pattern="zz.*"), 2),
    ("an unknown and an empty id are described", DescribeTransactionsRequest(["unknown", ""]), 0),
]


@pytest.mark.parametrize(("request_", "version"), [row[1:] for row in SINGLE], ids=[row[0] for row in SINGLE])
async def test_a_single_request_gets_the_same_answer(both: tuple[str, str], request_: Any, version: int) -> None:
    answers = []
    for address in both:
        async with side(address, "unknown"), side(address, "x") as one:
            answers.append(await one.client.call(request_, version, timeout=TIMEOUT_S))
    assert answers[0] == answers[1]
