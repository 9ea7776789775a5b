"""Extreme values in each integer field of each request, sent to a running node.

The node responds or closes the connection. It raises no unexpected exception. Honest clients are served during the test
and after a restart, and no value limits the last stable offset permanently.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest
import structlog

from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.process.clock import SystemClock
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.protocol.sasl.cluster_secret import ClusterSecret
from tests.support.extreme_integers import Case, Facts, batches, cases, random_case
from tests.support.node_cluster import CLUSTER_ID, NodeCluster
from tests.support.raw_client import ConnectionLost, RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, MutableMapping, Sequence
    from pathlib import Path

    from odradek.broker.requests.api import AnyApi

SECRET: Final = b"x" * 32
TIMEOUT_S: Final = 20
TOPICS: Final = ("target", "compacted")
BUSY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
EXTREME_PRODUCER_ID: Final = 2
"""Highest producer id in EXTREMES that the broker allocates in this test. The witness uses a higher one."""
RANDOM_CASES: Final = 200
"""Requests with several extreme values per API and version."""


@dataclass
class Broker:
    """One node with a listener for clients and one for brokers, and the errors in its log."""

    nodes: NodeCluster
    errors: list[str] = field(default_factory=list)

    async def start(self) -> None:
        secret = ClusterSecret(SECRET, random.Random(5).getrandbits)
        listeners = f"PLAINTEXT://127.0.0.1:{self.nodes.port(1)},INTERNAL://127.0.0.1:{self.nodes.port(2)}"
        await self.nodes.start_made({1: self.nodes.make(1, secret=secret, listeners=listeners)}, ())

    async def restart(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self.nodes.nodes[1].stop()
            await self.start()

    async def connect(self, *, internal: bool = False) -> RawClient:
        client = await RawClient.connect("127.0.0.1", self.nodes.port(2 if internal else 1))
        if internal:
            login = ClusterSecret(SECRET, random.Random(6).getrandbits).login(2, 1)
            response: Any = await client.call(login.request, 1)
            while (request := login.received(response)) is not None:
                response = await client.call(request, 2)
        return client

    def record(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        """Record exceptions in the log, as a structlog processor. Errors of a configuration have no exception."""
        if level == "critical" or "exc_info" in event or "unexpected" in event["event"]:
            self.errors.append(str(event))
        raise structlog.DropEvent


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Broker]:
    settings = {
        "inter.broker.listener.name": "INTERNAL",
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 5,
        "transaction.state.log.num.partitions": 5,
        **{api.gated.property_name: "true" for api in API_TABLE if api.gated is not None},
    }
    nodes = NodeCluster(directory, 2)  # the second port is for the listener of nodes
    nodes.settings |= {**settings, "controller.quorum.voters": f"1@127.0.0.1:{nodes.port(2)}"}
    broker = Broker(nodes)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: broker.errors.append(str(context)))
    structlog.configure(processors=[broker.record], wrapper_class=structlog.make_filtering_bound_logger(0))
    try:
        await broker.start()
        yield broker
    finally:
        await nodes.stop()
        structlog.reset_defaults()


async def until_not_busy(client: RawClient, request: Any, version: int) -> Any:
    """Repeat `request` while the coordinator is loading or busy, as clients do. Return the first other response."""
    async with asyncio.timeout(TIMEOUT_S):
        while (response := await client.call(request, version)).error_code in BUSY:
            await asyncio.sleep(0.01)
    return response


async def prepare(broker: Broker, client: RawClient) -> Facts:
    """Open a transaction, and join a classic group. Return what requests may refer to."""
    node = broker.nodes.nodes[1]
    for key_type, key in ((0, "g"), (1, "x")):
        await client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
    identity = await until_not_busy(client, InitProducerIdRequest("x", 60_000), 4)
    assert identity.error_code == ErrorCode.NONE, identity
    topics = [AddPartitionsToTxnTopic("target", [0])]
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=topics,
    )
    async with asyncio.timeout(TIMEOUT_S):
        while (await client.call(added, 3)).results_by_topic_v3_and_below[0].results_by_partition[
            0
        ].partition_error_code in BUSY:
            await asyncio.sleep(0.01)
    joined = await join(client)
    image = node.metadata.image
    target = image.topic("target")
    assert target is not None
    this = image.brokers[1]
    return Facts(
        cluster_id=CLUSTER_ID,
        topic="target",
        topic_id=target.topic_id,
        group="g",
        member_id=joined.member_id,
        generation=joined.generation_id,
        transactional_id="x",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        broker_epoch=this.epoch,
        incarnation_id=this.incarnation_id,
    )


async def join(client: RawClient) -> Any:
    """Join group `g` as its only member and synchronize. Members of earlier calls leave by their session time-out."""
    protocols = [JoinGroupRequestProtocol("range", b"")]
    request = JoinGroupRequest("g", 6_000, 6_000, "", "static", "consumer", protocols)
    joined = await until_not_busy(client, request, 6)
    assert joined.error_code == ErrorCode.NONE, joined
    synced = SyncGroupRequest("g", joined.generation_id, joined.member_id, "static", "consumer", "range", [])
    await client.call(synced, 5)
    return joined


class Witness:
    """Honest client: an idempotent producer, a transactional producer and a group without members."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sequence = dict.fromkeys(TOPICS, 0)
        self._identity: Any = None

    async def works(self) -> None:
        """Produce, commit a transaction and an offset. Fail if one of them is refused."""
        client = await self._broker.connect()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._produce(client)
                await self._commit_transaction(client)
                await self._commit_offset(client)
        finally:
            client.close()

    async def _produce(self, client: RawClient) -> None:
        while self._identity is None or self._identity.producer_id <= EXTREME_PRODUCER_ID:
            self._identity = await until_not_busy(client, InitProducerIdRequest(None, 60_000), 4)
        for topic in TOPICS:
            sequence, self._sequence[topic] = self._sequence[topic], self._sequence[topic] + 1
            assert await produced(client, topic, self._identity, sequence) is ErrorCode.NONE, topic

    async def _commit_transaction(self, client: RawClient) -> None:
        await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["witness"]), 4)
        identity = await until_not_busy(client, InitProducerIdRequest("witness", 60_000), 4)
        assert identity.error_code == ErrorCode.NONE, identity
        for topic in TOPICS:
            assert await produced(client, topic, identity, 0, transactional_id="witness") is ErrorCode.NONE
        request = EndTxnRequest("witness", identity.producer_id, identity.producer_epoch, committed=True)
        ended = await until_not_busy(client, request, 4)
        assert ended.error_code == ErrorCode.NONE, ended

    async def _commit_offset(self, client: RawClient) -> None:
        await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["witness"]), 4)
        partition = OffsetCommitRequestPartition(0, 1, -1, "")
        request = OffsetCommitRequest(
            "witness", -1, "", None, -1, [OffsetCommitRequestTopic("target", partitions=[partition])]
        )
        async with asyncio.timeout(TIMEOUT_S):
            while (error := (await client.call(request, 7)).topics[0].partitions[0].error_code) in BUSY:
                await asyncio.sleep(0.01)
        assert error == ErrorCode.NONE


async def produced(
    client: RawClient, topic: str, identity: Any, sequence: int, transactional_id: str | None = None
) -> ErrorCode:
    records = build_batch(
        [(b"k", b"v", SystemClock().wall_ms(), ())],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=sequence,
        transactional=transactional_id is not None,
    )
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])]
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            response = await client.call(ProduceRequest(transactional_id, -1, 5_000, data), 12)
            error = ErrorCode(response.responses[0].partition_responses[0].error_code)
            if error not in BUSY:
                return error
            await asyncio.sleep(0.01)


class Sender:
    """Connection that sends one case after the other, and connects again if the broker has closed it."""

    def __init__(self, broker: Broker, *, internal: bool) -> None:
        self._broker = broker
        self._internal = internal
        self._client: RawClient | None = None
        self.responses = 0

    async def send(self, case: Case) -> None:
        """Send the request, and a small one after it. Fail if neither a response nor the end arrives."""
        client = self._client
        if client is None or not client.is_open:
            client = self._client = await self._broker.connect(internal=self._internal)
        first = client.send(case.request, case.version)
        second = client.send(ApiVersionsRequest("extreme", "1"), 3)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await first
                self.responses += 1
                await second
        except ConnectionLost:
            client.close()
        except TimeoutError:
            client.abort()
            pytest.fail(f"no response and no end of the connection: {case.label}")
        assert not self._broker.nodes.unexpected, (case.label, self._broker.nodes.unexpected)
        assert not self._broker.errors, (case.label, self._broker.errors)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


async def set_up(broker: Broker) -> RawClient:
    client = await broker.connect()
    compacted = CreatableTopic("compacted", 1, 1, [], [CreatableTopicConfig("cleanup.policy", "compact")])
    created = await client.call(CreateTopicsRequest([CreatableTopic("target", 2, 1), compacted], 30_000), 7)
    assert [topic.error_code for topic in created.topics] == [0, 0]
    return client


async def finish(broker: Broker, witness: Witness) -> None:
    """Restart the broker. Fail unless the witness is served and each partition is stable up to its end."""
    for _ in range(2):
        await witness.works()
        client = await broker.connect()
        ended = await until_not_busy(client, InitProducerIdRequest("x", 60_000), 4)
        assert ended.error_code == ErrorCode.NONE, ended
        for topic in TOPICS:
            async with asyncio.timeout(TIMEOUT_S):
                while await end_offset(client, topic, 1) < await end_offset(client, topic, 0):
                    await asyncio.sleep(0.01)
        client.close()
        await broker.restart()
    await witness.works()
    assert not broker.errors, broker.errors


async def end_offset(client: RawClient, topic: str, isolation: int) -> int:
    partition = ListOffsetsPartition(0, -1, timestamp=-1)
    response = await client.call(ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, [partition])]), 7)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE, response
    return int(response.topics[0].partitions[0].offset)


def served(*roles: str) -> list[AnyApi]:
    return [api for api in API_TABLE if set(roles) & set(api.listeners) and api.key != ApiVersionsRequest.API_KEY]


def versions(api: AnyApi, *, full: bool) -> Sequence[int]:
    """Return the versions to send: the highest one, with that of a gate, or all if `full`."""
    highest = api.max_version if api.gated is None else api.gated.max_version
    return range(api.min_version if full else api.max_version, highest + 1)


async def send_all(broker: Broker, apis: Sequence[AnyApi], witness: Witness, *, internal: bool, full: bool) -> int:
    """Send the cases of each API. Return the number of responses."""
    sender = Sender(broker, internal=internal)
    client = await broker.connect()
    rng = random.Random(14)
    for api in apis:
        for version in versions(api, full=full):
            facts = await prepare(broker, client)
            for case in cases(api.request, version, facts):
                await sender.send(case)
            for _ in range(RANDOM_CASES if full else 0):
                await sender.send(random_case(api.request, version, facts, rng))
        await witness.works()
    client.close()
    sender.close()
    return sender.responses


async def send_batches(broker: Broker, topics: Iterable[str]) -> int:
    sender = Sender(broker, internal=False)
    client = await broker.connect()
    for topic in topics:
        facts = await prepare(broker, client)
        for label, batch, transactional in batches(facts):
            data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
            request = ProduceRequest("x" if transactional else None, -1, 1_000, data)
            await sender.send(Case(f"{topic}: {label}", request, 12))
    client.close()
    sender.close()
    return sender.responses


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_extreme_integers_from_a_client_leave_the_broker_healthy(tmp_path: Path, full: bool) -> None:
    async with running(tmp_path) as broker:
        (await set_up(broker)).close()
        witness = Witness(broker)
        assert await send_all(broker, served(CLIENT), witness, internal=False, full=full)
        assert await send_batches(broker, TOPICS)
        await finish(broker, witness)


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_extreme_integers_from_a_node_leave_the_broker_healthy(tmp_path: Path, full: bool) -> None:
    async with running(tmp_path) as broker:
        (await set_up(broker)).close()
        witness = Witness(broker)
        assert await send_all(broker, served(BROKER, CONTROLLER), witness, internal=True, full=full)
        await finish(broker, witness)
