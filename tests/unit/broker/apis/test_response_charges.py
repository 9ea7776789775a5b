"""Responses whose size does not follow from the request take at most the memory that is charged for them."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.apis import (
    consumer_group_describe,
    describe_groups,
    describe_producers,
    describe_transactions,
    list_groups,
    list_transactions,
    offset_fetch,
)
from odradek.broker.dispatch.large_requests import LargeRequests
from odradek.broker.dispatch.request_metrics import ApiMetrics
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.slices import completed
from odradek.client_shares import Client
from odradek.cluster.authorizer import AclOperation
from odradek.coordinator.group.classic import describe as describe_classic
from odradek.coordinator.group.classic.member import Member as ClassicMember
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.group.commands import Caller, DescribeClassic, DescribeConsumer, FetchOffsets, ListGroups
from odradek.coordinator.group.modern import describe as describe_consumer
from odradek.coordinator.group.modern.member import Member
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.offset_store import ZERO_TOPIC_ID, StoredOffset
from odradek.coordinator.group.offsets.fetch import decide_fetch, fetched_bytes_max
from odradek.coordinator.group.offsets.listing import decide_list, listed_bytes_max
from odradek.coordinator.group.ports import TopicInfo
from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.service import TransactionCoordinator, TransactionDescription
from odradek.protocol.batch import build_batch
from odradek.protocol.codec import SlicedPacking
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.txn_state import TxnState
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import Rig
from tests.support.fake_groups import FakeGroups, group_context
from tests.support.group_ports import FakeTopics
from tests.support.offsets_rig import FakeGroup, OffsetsRig
from tests.support.txn_rig import CoreRig, transaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from odradek.broker.contexts import BrokerRequestContext
    from odradek.broker.requests.api import AnyApi
    from odradek.broker.requests.session import Session
    from odradek.coordinator.group.state import State

TEXTS: dict[str, tuple[int, Callable[[int], str]]] = {
    "short": (3_000, str),
    "long": (300, lambda number: f"{number}".ljust(30_000, "x")),
    "long, and not ASCII": (300, lambda number: f"{number}".ljust(8_000, "\U0001f600")),
}
"""Shape -> (number of ids, function that returns the id with a number)."""


async def peak_and_charge(
    api: AnyApi, array: str, request_context: BrokerRequestContext, request: Any
) -> tuple[int, int]:
    """Return the maximum memory that the response takes with its encoded form, and the bytes that were charged."""
    await completed(api.handle(request_context, request))  # codecs are compiled at the first use
    request_context.charge = 0
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        response: Any = await completed(api.handle(request_context, request))
        packing = SlicedPacking(api.response, request_context.api_version, getattr(response, array))
        while not packing.run_slice():
            pass
        packing.packed()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before, request_context.charge


def done(reply: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(reply)
    return future


class Groups(FakeGroups):
    """Coordinator of the groups in `state`."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state

    def all_shards(self) -> list[Any]:
        return [SimpleNamespace(core=self)]

    def listed_bytes_max(self, shard: Any) -> int:
        return listed_bytes_max(shard.core.state)

    def fetched_bytes_max(self, group_id: str) -> int:
        return fetched_bytes_max(self.state, group_id)

    def fetch_offsets(self, request: Any, caller: Caller, *, require_stable: bool) -> asyncio.Future[Any]:
        return done(decide_fetch(self.state, FetchOffsets(request, require_stable, caller), 0).reply)

    def described_bytes_max(self, group_id: str) -> int:
        group = self.state.groups.get(group_id)
        return 0 if group is None else group.described_bytes_max

    def describe(self, group_id: str, api_version: int) -> asyncio.Future[Any]:
        return done(describe_classic.decide_describe(self.state, DescribeClassic(group_id, api_version), 0).reply)

    def describe_consumer(self, group_id: str) -> asyncio.Future[Any]:
        return done(describe_consumer.decide_describe(self.state, DescribeConsumer(group_id), 0).reply)

    async def list_groups(self, states: frozenset[str], types: frozenset[str], shards: list[Any]) -> Any:
        [shard] = shards
        return decide_list(shard.core.state, ListGroups(states, types), 0).reply


class Transactions:
    """Coordinator of the transactions in `core`."""

    def __init__(self, rig: CoreRig) -> None:
        self.core = rig.core

    def all_shards(self) -> list[Any]:
        return [SimpleNamespace(core=self.core, shard=0)]

    def listed_bytes_max(self, shard: Any) -> int:
        coordinator: Any = self
        return TransactionCoordinator.listed_bytes_max(coordinator, shard)

    def partition_of(self, _transactional_id: str) -> int:
        return 0

    def described_bytes_max(self, transactional_id: str) -> int:
        coordinator: Any = SimpleNamespace(_shards={0: SimpleNamespace(core=self.core)}, partition_of=self.partition_of)
        return TransactionCoordinator.described_bytes_max(coordinator, transactional_id)

    async def describe(self, transactional_id: str) -> TransactionDescription:
        txn = self.core.transactions[transactional_id]
        return TransactionDescription(txn, dict(txn.partitions), 0, 0, Client("10.0.0.1", "\U0001f600" * 255))

    async def list_transactions(self, shards: list[Any]) -> list[Any]:
        return [(shard, tuple(shard.core.transactions.values())) for shard in shards]


@pytest.mark.parametrize("shape", TEXTS)
async def test_list_groups_takes_at_most_its_charge(shape: str) -> None:
    rig = OffsetsRig()
    count, text = TEXTS[shape]
    for number in range(count):
        rig.state.groups[text(number)] = FakeGroup(text(number), protocol_type=text(number))
    request_context = group_context(list_groups.API, 5, Groups(rig.state))
    peak, charge = await peak_and_charge(list_groups.API, "groups", request_context, ListGroupsRequest())
    assert charge / 10 < peak <= charge


@pytest.mark.parametrize("shape", TEXTS)
async def test_list_transactions_takes_at_most_its_charge(shape: str) -> None:
    rig = CoreRig()
    count, text = TEXTS[shape]
    for number in range(count):
        rig.store(transaction(transactional_id=text(number)))
    request_context = group_context(list_transactions.API, 2)
    request_context.broker.transactions = Transactions(rig)  # type: ignore[misc, assignment]
    peak, charge = await peak_and_charge(
        list_transactions.API, "transaction_states", request_context, ListTransactionsRequest()
    )
    assert charge / 10 < peak <= charge


@pytest.mark.parametrize(
    ("topics", "partitions", "metadata"),
    [(1, 3_000, ""), (3_000, 1, ""), (3, 100, "x" * 4_000), (3, 100, "\U0001f600" * 1_000)],
    ids=["many partitions", "many topics", "metadata", "metadata that is not ASCII"],
)
@pytest.mark.parametrize(("version", "array"), [(7, "topics"), (9, "groups")])
async def test_offset_fetch_of_all_offsets_takes_at_most_its_charge(
    version: int, array: str, topics: int, partitions: int, metadata: str
) -> None:
    rig = OffsetsRig()
    rig.group(FakeGroup("g"))
    for number in range(topics):
        for partition in range(partitions):
            stored = StoredOffset(10**6 + partition, 300, 1, -1, 1, ZERO_TOPIC_ID, metadata)
            rig.state.offsets.put(("g", f"{number}".ljust(249, "t"), partition), stored.packed())
    request_context = group_context(offset_fetch.API, version, Groups(rig.state))
    request = OffsetFetchRequest("g", None, [OffsetFetchRequestGroup("g", topics=None)])
    peak, charge = await peak_and_charge(offset_fetch.API, array, request_context, request)
    assert charge / 10 < peak <= charge


@pytest.mark.parametrize(("members", "metadata_bytes"), [(2_000, 0), (50, 40_000)])
async def test_describe_groups_takes_at_most_its_charge(members: int, metadata_bytes: int) -> None:
    rig, group = OffsetsRig(), ClassicGroup("g", ClassicState.STABLE, "consumer", "range")
    for number in range(members):
        protocols = (("range", bytes(metadata_bytes)),)
        group.members[str(number)] = ClassicMember(
            str(number), None, "client", "/10.0.0.1", 1, 1, protocols, bytes(metadata_bytes)
        )
    rig.state.groups["g"] = group
    request_context = group_context(describe_groups.API, 6, Groups(rig.state))
    request = DescribeGroupsRequest(["g"] * 3)
    peak, charge = await peak_and_charge(describe_groups.API, "groups", request_context, request)
    assert charge / 10 < peak <= charge


class NumberedTopics(FakeTopics):
    """Topics of every id, with names of maximum length."""

    def by_id(self, topic_id: bytes) -> TopicInfo:
        return TopicInfo(topic_id, topic_id.hex().ljust(249, "t"), 1, ())


@pytest.mark.parametrize(("members", "topics", "partitions"), [(1_000, 0, 0), (10, 100, 1), (2, 2, 2_000)])
async def test_consumer_group_describe_takes_at_most_its_charge(members: int, topics: int, partitions: int) -> None:
    rig, group = OffsetsRig(), ConsumerGroup("g")
    rig.state.topics = NumberedTopics()
    indexes = range(1_000, 1_000 + partitions)
    assigned = {number.to_bytes(16, "big"): dict.fromkeys(indexes, 1) for number in range(topics)}
    for number in range(members):
        names = tuple(str(topic).ljust(249, "t") for topic in range(topics))
        group.members[str(number)] = Member(str(number), topics=names, assigned=assigned)
        group.targets[str(number)] = {topic: frozenset(indexes) for topic in assigned}
    rig.state.groups["g"] = group
    request_context = group_context(consumer_group_describe.API, 1, Groups(rig.state))
    request = ConsumerGroupDescribeRequest(["g"] * 3)
    peak, charge = await peak_and_charge(consumer_group_describe.API, "groups", request_context, request)
    assert charge / 10 < peak <= charge


@pytest.mark.parametrize("client_id", ["c", "\U0001f600" * 255], ids=["short", "long"])
async def test_describe_producers_takes_at_most_its_charge(tmp_path: Path, client_id: str) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    client = Client("10.0.0.1", client_id)
    for producer_id in range(300):
        data = build_batch([(None, b"v", 0, ())], producer_id=producer_id, producer_epoch=0, base_sequence=0)
        rig.partition().append(data, origin=Origin.CLIENT, now_ms=0, client=client)
    request = DescribeProducersRequest([TopicRequest("t", [0] * 10)])
    peak, charge = await peak_and_charge(describe_producers.API, "topics", rig.context(61, 0), request)
    assert charge / 10 < peak <= charge


@pytest.mark.parametrize(("ids", "topics", "partitions"), [(200, 1, 1), (3, 1_000, 1), (3, 1, 3_000)])
async def test_describe_transactions_takes_at_most_its_charge(ids: int, topics: int, partitions: int) -> None:
    rig = CoreRig()
    topic_names = [f"{topic}".ljust(249, "t") for topic in range(topics)]
    places = [TopicPartition(name, partition) for name in topic_names for partition in range(partitions)]
    names = [str(number) for number in range(ids)]
    for name in names:
        rig.store(transaction(TxnState.ONGOING, transactional_id=name, partitions=places))
    request_context = group_context(describe_transactions.API, 0)
    request_context.broker.transactions = Transactions(rig)  # type: ignore[misc, assignment]
    request = DescribeTransactionsRequest(names)
    peak, charge = await peak_and_charge(describe_transactions.API, "transaction_states", request_context, request)
    assert charge / 10 < peak <= charge


class CountedTurns(LargeRequests):
    """Large requests that count their turns."""

    turns = 0

    async def next_turn(self, session: Session) -> None:
        self.turns += 1
        await super().next_turn(session)


def groups_with_a_large_one(*, classic: bool) -> Groups:
    """Return a coordinator of the group "g", which has many members and many committed offsets."""
    rig, group = OffsetsRig(), ConsumerGroup("g")
    classic_group = ClassicGroup("g", ClassicState.STABLE, "consumer", "range")
    for number in range(300):
        member_id = str(number)
        group.members[member_id] = Member(member_id)
        classic_group.members[member_id] = ClassicMember(
            member_id, None, "client", "/10.0.0.1", 1, 1, (("range", b""),), b""
        )
        stored = StoredOffset(number, 0, 1, -1, 1, ZERO_TOPIC_ID, "x" * 1_000)
        rig.state.offsets.put(("g", "t", number), stored.packed())
    rig.state.groups["g"] = classic_group if classic else group
    return Groups(rig.state)


def transactions_with_a_large_one() -> Transactions:
    """Return a coordinator with a transaction of many partitions, whose transactional id is "g"."""
    rig = CoreRig()
    places = [TopicPartition("t", partition) for partition in range(3_000)]
    rig.store(transaction(TxnState.ONGOING, transactional_id="g", partitions=places))
    return Transactions(rig)


async def charges_and_turns(api: AnyApi, version: int, request: Any, *denied: str) -> tuple[list[int], int]:
    """Return the charges and releases of a request, in order, and its turns of the event loop."""
    groups = groups_with_a_large_one(classic=api is not consumer_group_describe.API)
    denials = [(AclOperation.DESCRIBE, name) for name in denied]
    request_context = group_context(api, version, groups, *denials)
    request_context.broker.transactions = transactions_with_a_large_one()  # type: ignore[misc, assignment]
    charges: list[int] = []
    large = CountedTurns(ByteBudget(1 << 40), {api.key: ApiMetrics("api")})
    request_context.session.on_charge, request_context.session.begin_large = charges.append, large.begin
    await completed(api.handle(request_context, request))
    return charges, large.turns


@pytest.mark.parametrize(
    ("api", "version", "request_for"),
    [
        (offset_fetch.API, 7, lambda name: OffsetFetchRequest(name, None)),
        (offset_fetch.API, 9, lambda name: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None)])),
        (describe_groups.API, 6, lambda name: DescribeGroupsRequest([name])),
        (consumer_group_describe.API, 1, lambda name: ConsumerGroupDescribeRequest([name])),
        (describe_transactions.API, 0, lambda name: DescribeTransactionsRequest([name])),
    ],
    ids=["OffsetFetch v7", "OffsetFetch v9", "DescribeGroups", "ConsumerGroupDescribe", "DescribeTransactions"],
)
async def test_denied_existing_name_has_the_charges_and_turns_of_a_denied_absent_name(
    api: AnyApi, version: int, request_for: Callable[[str], Any]
) -> None:
    _, turns = await charges_and_turns(api, version, request_for("g"))
    assert turns, "the response to a client with permission takes several turns"
    existing = await charges_and_turns(api, version, request_for("g"), "g", "a")
    absent = await charges_and_turns(api, version, request_for("a"), "g", "a")
    assert existing == absent
