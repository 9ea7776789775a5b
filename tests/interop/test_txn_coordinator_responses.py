"""Responses of the transaction coordinator, compared with those of Apache Kafka.

Both brokers receive the same valid and invalid requests of TV1 and TV2. A request with the response
CONCURRENT_TRANSACTIONS is repeated, because Odradek waits in cases in which Kafka sends it immediately. All other
responses must be equal. Producer ids are numbered in the order of their first occurrence.
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

from odradek import LocalCluster
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
from tests.interop.conftest import SETTINGS
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

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
    """One request. Producer id and epoch are relative to those that the producer received last."""

    method: str
    version: int
    other_pid: bool = False
    epoch: int = 0
    commit: bool = True
    partition: int = 0


@dataclass
class Side:
    """One broker, with the producer id and epoch that its producer received last."""

    client: RawClient
    transactional_id: str
    pid: int = -1
    epoch: int = -1
    numbers: dict[int, int] = field(default_factory=dict)

    def number(self, pid: int) -> int:
        return pid if pid < 0 else self.numbers.setdefault(pid, len(self.numbers))

    async def response(self, step: Step) -> Any:
        """Return the first response that is not in BUSY, as values that are comparable between brokers."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            response = await getattr(self, step.method)(step)
            if not any(word in str(response) for word in BUSY):
                return response
            assert time.monotonic() < deadline, f"{step} still receives {response} after {TIMEOUT_S} s"
            await asyncio.sleep(0.01)

    def claims(self, step: Step) -> tuple[int, int]:
        return OTHER_PID if step.other_pid else self.pid, max(self.epoch + step.epoch, 0)

    async def init(self, step: Step) -> Any:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        if step.version >= 3 and self.pid >= 0:
            request.producer_id, request.producer_epoch = self.claims(step)
        return self.received(await self.client.call(request, max(step.version, 1), timeout=TIMEOUT_S))

    async def end(self, step: Step) -> Any:
        pid, epoch = self.claims(step)
        request = EndTxnRequest(self.transactional_id, pid, epoch, step.commit)
        return self.received(await self.client.call(request, step.version, timeout=TIMEOUT_S))

    def received(self, response: Any) -> Any:
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
            verify = step.method == "verify"
            only = AddPartitionsToTxnTransaction(self.transactional_id, pid, epoch, verify, topics)
            request = AddPartitionsToTxnRequest([only])
        response = await self.client.call(request, step.version, timeout=TIMEOUT_S)
        results = response.results_by_topic_v3_and_below
        for transaction in response.results_by_transaction:
            results = [*results, *transaction.topic_results]
        return ErrorCode(response.error_code).name, [
            (result.partition_index, ErrorCode(result.partition_error_code).name)
            for topic in results
            for result in topic.results_by_partition
        ]

    verify = add

    async def describe(self, step: Step) -> Any:
        request = DescribeTransactionsRequest([self.transactional_id])
        state = (await self.client.call(request, 0, timeout=TIMEOUT_S)).transaction_states[0]
        # The brokers may take different times from a Prepare state to a Complete state.
        if state.transaction_state.startswith("Prepare"):
            return BUSY[0]
        topics = [(topic.topic, sorted(topic.partitions)) for topic in state.topics]
        error = ErrorCode(state.error_code).name
        return error, state.transaction_state, self.number(state.producer_id), state.producer_epoch, topics


def steps(rng: Random) -> list[Step]:
    """Return the requests of a producer of TV1 and TV2, with some invalid ones and some of other producers."""
    generated = [Step("init", 0)]
    for _ in range(STEPS):
        method = rng.choices(["init", "add", "verify", "end", "describe"], [2, 6, 2, 8, 1])[0]
        version = {
            "init": [1, 3, 4],
            "add": [0, 1, 3, 5],
            "verify": [4, 5],
            "end": [1, 2, 4, 5, 5, 5],
            "describe": [0],
        }[method]
        generated.append(
            Step(
                method,
                rng.choice(version),
                other_pid=rng.random() < 0.06,
                epoch=rng.choices([0, -1, 1, -2], [16, 4, 1, 1])[0],
                commit=rng.random() < 0.5,
                partition=rng.choices([0, 1, 9], [5, 4, 1])[0],
            )
        )
    return generated


def inherits_a_classic_end(step: Step, responses: list[Any], last_end: Step | None) -> bool:
    """Return True if Kafka accepts a fenced producer's EndTxn as a retry of its classic successor's (decision 0012)."""
    return (
        last_end is not None
        and last_end.version < 5
        and (step.method, step.version, step.epoch) == ("end", 5, -1)
        and responses[0][0] == "PRODUCER_FENCED"
        and responses[1][0] in {"NONE", "INVALID_TXN_STATE"}
    )


async def is_init_of_a_fenced_producer(step: Step, broker: Side) -> bool:
    """Return True for an InitProducerId request with another epoch than that of the ongoing transaction.

    Apache Kafka aborts the transaction for it. Odradek refuses it.
    """
    pid, epoch = broker.claims(step)
    if step.method != "init" or step.version < 3 or pid != broker.pid or pid < 0 or epoch == broker.epoch:
        return False
    _, state, *_ = await broker.response(Step("describe", 0))
    return bool(state == "Ongoing")


@asynccontextmanager
async def side(bootstrap: str, name: str) -> AsyncIterator[Side]:
    host, _, port = bootstrap.partition(":")
    client = await RawClient.connect(host, int(port))
    try:
        await await_coordinator(client, name)
        yield Side(client, name)
    finally:
        client.close()
        await asyncio.sleep(0)


NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def await_coordinator(client: RawClient, name: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        results: Any = await client.call(
            FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4, timeout=TIMEOUT_S
        )
        # A coordinator that was found may still be loading its partition. A list needs all partitions.
        request = DescribeTransactionsRequest(transactional_ids=[name])
        state: Any = await client.call(request, 0, timeout=TIMEOUT_S)
        listed: Any = await client.call(ListTransactionsRequest(), 2, timeout=TIMEOUT_S)
        codes = {state.transaction_states[0].error_code, listed.error_code}
        if results.coordinators[0].error_code == 0 and codes.isdisjoint(NOT_YET):
            return
        assert time.monotonic() < deadline, "no coordinator is available"
        await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def both(kafka_broker: KafkaBroker) -> Iterator[tuple[str, str]]:
    """Start Odradek with one listener for clients and brokers, without authentication: brokers send `verify`."""
    shared = {
        "inter.broker.listener.name": "PLAINTEXT",
        "cluster.secret.file": "",
        "odradek.inter.broker.authentication": "none",
    }
    with LocalCluster(settings=SETTINGS | shared) as cluster:
        addresses = (cluster.bootstrap, kafka_broker.bootstrap)
        for address in addresses:
            admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
            admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(TIMEOUT_S)
        yield addresses
        # Kafka's broker stays, and pytest-xdist may set up this fixture again in the same process.
        admin.delete_topics([TOPIC])[TOPIC].result(TIMEOUT_S)


@pytest.mark.parametrize("seed", SEEDS)
async def test_sequence_of_requests_receives_the_same_responses(both: tuple[str, str], seed: int) -> None:
    name = f"txn-{seed}-{time.time_ns():x}"
    history: list[Any] = []
    async with side(both[0], name) as ours, side(both[1], name) as kafkas:
        last_end: Step | None = None
        for step in steps(Random(seed)):
            if await is_init_of_a_fenced_producer(step, ours):
                assert (await ours.response(step))[0] == "PRODUCER_FENCED"
                continue
            responses = [await broker.response(step) for broker in (ours, kafkas)]
            history.append((step, *responses))
            if not inherits_a_classic_end(step, responses, last_end):
                assert responses[0] == responses[1], "\n".join(map(str, history[-8:]))
            if step.method == "end" and responses[0][0] == "NONE":
                last_end = step


SINGLE = [
    ("producer id without an epoch", InitProducerIdRequest("x", 60_000, 5, -1), 4),
    ("epoch without a producer id", InitProducerIdRequest(None, 60_000, -1, 5), 4),
    ("empty transactional id", InitProducerIdRequest("", 60_000), 4),
    ("time-out of zero", InitProducerIdRequest("x", 0), 4),
    ("time-out above the maximum", InitProducerIdRequest("x", 900_001), 4),
    ("time-out above the maximum, producer id without an epoch", InitProducerIdRequest("x", 900_001, 1, -1), 4),
    ("EndTxn of an unknown id", EndTxnRequest("unknown", 1, 1, True), 4),
    ("EndTxn of an unknown id, TV2", EndTxnRequest("unknown", 1, 1, True), 5),
    ("EndTxn of an empty id", EndTxnRequest("", 1, 1, True), 5),
    ("list of an unknown state", ListTransactionsRequest(["Nonsense", "Dead"]), 2),
    ("invalid pattern", ListTransactionsRequest(transactional_id_pattern="("), 2),
    ("pattern that RE2 does not support", ListTransactionsRequest(transactional_id_pattern="(?=a)"), 2),
    ("pattern without a match", ListTransactionsRequest(transactional_id_pattern="zz.*"), 2),
    ("description of an unknown and an empty id", DescribeTransactionsRequest(["unknown", ""]), 0),
]


@pytest.mark.parametrize(("request_", "version"), [row[1:] for row in SINGLE], ids=[row[0] for row in SINGLE])
async def test_single_request_receives_the_same_response(both: tuple[str, str], request_: Any, version: int) -> None:
    responses = []
    for address in both:
        async with side(address, "unknown"), side(address, "x") as one:
            responses.append(await one.client.call(request_, version, timeout=TIMEOUT_S))
    assert responses[0] == responses[1]
