"""Large requests and responses are processed between other work of the event loop, small ones in one piece."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.apis import (
    add_partitions_to_txn,
    create_partitions,
    describe_client_quotas,
    describe_log_dirs,
    describe_quorum,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    metadata,
)
from odradek.broker.requests.slices import (
    DISTINCT_BYTES,
    ELEMENT_BYTES,
    RUN_BYTES_MAX,
    collect,
    collect_charged,
    completed,
    distinct,
    respond_in_parts,
    visit_parts,
    visit_slices,
)
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.authorizer import AclOperation, Principal, ResourceType
from odradek.cluster.controller.messages.partitions import OngoingReassignment, PartitionResult
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigResult
from odradek.cluster.controller.messages.topics import TopicResult
from odradek.cluster.metadata.image import RESOURCE_TOPIC, QuotaEntity
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, EntryData
from odradek.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
)
from odradek.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.elect_leaders import PartitionResult as Row
from odradek.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.support.broker_context import Deny, FakeController, image, response_of, services_of
from tests.support.broker_context import context as context_of
from tests.support.broker_context import topic as topic_image

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

TOPICS = Splitting(("topics",), ("topics",))


@pytest.fixture
def context() -> Any:
    return SimpleNamespace(encode_in_slices=False, session=SimpleNamespace(begin_large=None))


class Count:
    """Number of elements that are processed between two turns of another task."""

    def __init__(self) -> None:
        self.largest = self._since_turn = 0

    def add(self, count: int) -> None:
        self._since_turn += count
        self.largest = max(self.largest, self._since_turn)

    async def during(self, work: Awaitable[Any]) -> Any:
        other = asyncio.create_task(self._other_work())
        result = await work
        other.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other
        return result

    async def _other_work(self) -> None:
        while True:
            self._since_turn = 0
            await asyncio.sleep(0)


def response(topics: list[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(topics=topics)


def topics(count: int) -> list[MetadataResponseTopic]:
    return [MetadataResponseTopic(name=f"t{number}") for number in range(count)]


def test_small_response_is_built_without_a_coroutine(context: Any) -> None:
    expected = topics(ELEMENTS_PER_PART // 10)
    results = ((topic, [0] * 10) for topic in expected)
    assert collect(context, MetadataResponse, results, ELEMENTS_PER_PART, response) == response(expected)
    assert not context.encode_in_slices


async def test_large_response_is_built_in_bounded_pieces(context: Any) -> None:
    expected, partitions, count = topics(400), 20, Count()

    def results() -> Iterator[tuple[MetadataResponseTopic, list[int]]]:
        for topic in expected:
            count.add(partitions)
            yield topic, [0] * partitions

    total = len(expected) * partitions
    built = await count.during(completed(collect(context, MetadataResponse, results(), total, response)))
    assert built == response(expected)
    assert 0 < count.largest <= ELEMENTS_PER_PART + partitions
    assert context.encode_in_slices


async def test_result_with_a_long_nested_array_is_built_in_pieces(context: Any) -> None:
    expected, piece, count = topics(3), ELEMENTS_PER_PART // 2, Count()

    def results() -> Iterator[tuple[MetadataResponseTopic | None, list[int]]]:
        for topic in expected:
            for _ in range(9):
                count.add(piece)
                yield None, [0] * piece
            count.add(1)
            yield topic, [0]

    total = len(expected) * (9 * piece + 1)
    built = await count.during(completed(collect(context, MetadataResponse, results(), total, response)))
    assert built == response(expected)
    assert 0 < count.largest <= ELEMENTS_PER_PART + piece


@pytest.mark.parametrize("parts", [1, 4])
async def test_parts_of_a_large_request_are_visited_with_turns_in_between(parts: int) -> None:
    names = [f"t{number}" for number in range(parts * ELEMENTS_PER_PART)]
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    visited: list[str | None] = []
    count = Count()

    def visit(part: MetadataRequest) -> None:
        assert part.topics is not None
        count.add(len(part.topics))
        visited.extend(topic.name for topic in part.topics)

    await count.during(visit_parts(TOPICS, request, visit))
    assert visited == names
    assert count.largest == ELEMENTS_PER_PART


@pytest.mark.parametrize("slices", [0, 1, 2, 4])
async def test_slices_are_visited_with_turns_in_between(context: Any, slices: int) -> None:
    work, visited = Work(), list[int]()
    context.session.begin_large = lambda _context: contextlib.nullcontext(work)
    await visit_slices(context, range(slices), visited.append)
    assert visited == list(range(slices))
    assert len(work.turns) == max(slices - 1, 0), "the first slice waits for no turn"


@pytest.mark.parametrize("parts", [1, 4])
async def test_items_of_a_large_response_are_responded_to_with_turns_in_between(context: Any, parts: int) -> None:
    expected, count = topics(parts * ELEMENTS_PER_PART), Count()

    def respond(part: Sequence[MetadataResponseTopic]) -> MetadataResponse:
        count.add(len(part))
        return response(list(part))

    built = await count.during(respond_in_parts(context, TOPICS, MetadataResponse, expected, respond))
    assert built == response(expected)
    assert count.largest == ELEMENTS_PER_PART
    assert context.encode_in_slices == (parts > 1)


# ---- handlers -------------------------------------------------------------------------------------------------------


def counted(count: Count, make: Callable[..., Any]) -> Callable[..., Any]:
    def make_and_count(*arguments: Any, **named: Any) -> Any:
        count.add(1)
        return make(*arguments, **named)

    return make_and_count


async def test_large_election_is_requested_and_responded_to_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    indexes = range(4 * ELEMENTS_PER_PART)
    topics = [TopicPartitions("a", list(indexes)), TopicPartitions("b", [0, 0])]
    unique = [*(("a", index) for index in indexes), ("b", 0)]
    controller = FakeController([PartitionResult(topic, index, ErrorCode.NONE) for topic, index in unique])
    count = Count()
    monkeypatch.setattr(elect_leaders, "PartitionResult", counted(count, Row))
    handled = elect_leaders.handle(context_of(2, image(), controller=controller), ElectLeadersRequest(0, topics))
    built = await count.during(handled)
    assert [partition for call, _ in controller.calls for partition in call] == unique
    results = built.replica_election_results
    rows = [(topic.topic, row.partition_id) for topic in results for row in topic.partition_result]
    assert rows == unique
    assert [topic.topic for topic in results] == ["a", "b"]
    assert 0 < count.largest <= ELEMENTS_PER_PART


async def test_large_request_for_partitions_is_processed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(4 * ELEMENTS_PER_PART)]
    controller = FakeController([TopicResult(name) for name in names])
    accepted, built = Count(), Count()
    monkeypatch.setattr(create_partitions, "_new_partitions", counted(accepted, create_partitions._new_partitions))
    monkeypatch.setattr(create_partitions, "_result", counted(built, create_partitions._result))
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, 3, None) for name in names])
    handled = create_partitions.handle(context_of(3, image(), controller=controller), request)
    response = await accepted.during(built.during(handled))
    assert [topic.name for call, _ in controller.calls for topic in call] == names
    assert [row.name for row in response.results] == names
    assert (accepted.largest, built.largest) == (ELEMENTS_PER_PART, ELEMENTS_PER_PART)


async def test_distinct_elements_of_a_large_request_are_charged() -> None:
    handler_context = context_of(1, image())
    charged: list[int] = []
    handler_context.session.on_charge = charged.append
    names = [f"t{number}" for number in range(2 * ELEMENTS_PER_PART)]
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names * 2])
    count = Count()

    def names_of(part: MetadataRequest) -> list[str | None]:
        assert part.topics is not None
        count.add(len(part.topics))
        return [topic.name for topic in part.topics]

    assert await count.during(distinct(handler_context, TOPICS, request, names_of)) == names
    assert sum(charged) == handler_context.charge == len(names) * DISTINCT_BYTES
    assert count.largest == ELEMENTS_PER_PART


@pytest.mark.parametrize("indexes", [range(4 * ELEMENTS_PER_PART), [0] * (4 * ELEMENTS_PER_PART), [0, 0]])
async def test_partitions_of_describe_quorum_are_described_once_and_in_slices(
    monkeypatch: pytest.MonkeyPatch, indexes: Sequence[int]
) -> None:
    count = Count()
    described = counted(count, describe_quorum._describe)
    monkeypatch.setattr(describe_quorum, "_describe", described)
    monkeypatch.setattr(describe_quorum, "parse_voters", lambda _config: [])
    handler_context = context_of(2, image())
    services_of(handler_context).raft = SimpleNamespace(core=SimpleNamespace(leader_state=None))
    partitions = [RequestPartitionData(index) for index in indexes]
    request = DescribeQuorumRequest([RequestTopicData(CLUSTER_METADATA, partitions)])
    built = await count.during(response_of(describe_quorum.handle(handler_context, request)))
    [described_topic] = built.topics
    errors = {row.partition_index: row.error_code for row in described_topic.partitions}
    assert len(described_topic.partitions) == len(errors)
    assert list(errors) == list(dict.fromkeys(indexes))
    assert errors[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert 0 < count.largest <= min(ELEMENTS_PER_PART, len(errors))


@pytest.mark.parametrize("names_all", [True, False])
async def test_log_directory_with_many_partitions_is_described_in_slices(
    monkeypatch: pytest.MonkeyPatch, names_all: bool
) -> None:
    count, indexes = Count(), range(2 * ELEMENTS_PER_PART)
    disk = SimpleNamespace(total_bytes=lambda _directory: 9, free_bytes=lambda _directory: 4)
    monkeypatch.setattr(describe_log_dirs, "DescribeLogDirsPartition", counted(count, DescribeLogDirsPartition))
    handler_context = context_of(4, image())
    services_of(handler_context).partitions = [
        SimpleNamespace(
            online=True,
            log=SimpleNamespace(topic=name, partition=index, segments=SimpleNamespace(size=index), disk=disk),
        )
        for name in "ab"
        for index in indexes
    ]
    named = [DescribableLogDirTopic(name, list(indexes)) for name in "ab"]
    request = DescribeLogDirsRequest(named if names_all else None)
    response = await count.during(response_of(describe_log_dirs.handle(handler_context, request)))
    [result] = response.results
    rows = [
        (topic.name, row.partition_index, row.partition_size) for topic in result.topics for row in topic.partitions
    ]
    assert rows == [(name, index, index) for name in "ab" for index in indexes]
    assert [topic.name for topic in result.topics] == ["a", "b"]
    assert (result.total_bytes, result.usable_bytes) == (9, 4)
    assert 0 < count.largest <= ELEMENTS_PER_PART
    assert handler_context.encode_in_slices
    assert handler_context.charge == (2 * len(indexes) * DISTINCT_BYTES if names_all else 0)


async def test_many_users_are_looked_up_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    count, names = Count(), [f"u{number}" for number in range(3 * ELEMENTS_PER_PART)]
    result = counted(count, DescribeUserScramCredentialsResult)
    monkeypatch.setattr(describe_user_scram_credentials, "DescribeUserScramCredentialsResult", result)
    request = DescribeUserScramCredentialsRequest([UserName(name) for name in (*names, names[0])])
    response = await count.during(response_of(describe_user_scram_credentials.handle(context_of(0, image()), request)))
    errors = {row.user: row.error_code for row in response.results}
    assert list(errors) == names
    assert errors[names[0]] == ErrorCode.DUPLICATE_RESOURCE
    assert {errors[name] for name in names[1:]} == {ErrorCode.RESOURCE_NOT_FOUND}
    assert 0 < count.largest <= ELEMENTS_PER_PART


async def test_many_quotas_are_described_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Count()
    quotas: dict[QuotaEntity, dict[str, float]] = {
        (("user", f"u{number}"),): {"x": 1.0} for number in range(3 * ELEMENTS_PER_PART)
    }
    monkeypatch.setattr(describe_client_quotas, "EntryData", counted(count, EntryData))
    handler_context = context_of(1, replace(image(), client_quotas=quotas))
    request = DescribeClientQuotasRequest([], strict=False)
    response = await count.during(response_of(describe_client_quotas.handle(handler_context, request)))
    described = [tuple((part.entity_type, part.entity_name) for part in entry.entity) for entry in response.entries]
    assert described == list(quotas)
    assert 0 < count.largest <= ELEMENTS_PER_PART
    assert handler_context.encode_in_slices


async def test_reassignments_of_many_partitions_are_listed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    count, indexes = Count(), range(3 * ELEMENTS_PER_PART)
    row = counted(count, OngoingPartitionReassignment)
    monkeypatch.setattr(list_partition_reassignments, "OngoingPartitionReassignment", row)
    requested: list[tuple[str, int]] = []

    async def list_reassignments(partitions: Sequence[tuple[str, int]], **_: Any) -> list[OngoingReassignment]:
        requested.extend(partitions)
        return [OngoingReassignment(name, index, (1,), (1,), ()) for name, index in partitions]

    controller: Any = SimpleNamespace(list_reassignments=list_reassignments)
    handler_context = context_of(0, image(), controller=controller)
    request = ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics("t", [*indexes, 0])])
    response = await count.during(response_of(list_partition_reassignments.handle(handler_context, request)))
    assert requested == [("t", index) for index in indexes]
    [listed] = response.topics
    assert [partition.partition_index for partition in listed.partitions] == list(indexes)
    assert 0 < count.largest <= ELEMENTS_PER_PART
    assert handler_context.charge == len(indexes) * DISTINCT_BYTES


class Transactions:
    """Fake transaction coordinator: it records the added partitions."""

    def __init__(self, refusal: Refusal | None = None) -> None:
        self.added: list[tuple[str, int]] = []
        self._refusal = refusal

    def add_partitions(self, _id: str, _producer_id: int, _epoch: int, partitions: Any, **_: Any) -> Any:
        self.added.extend(partitions)
        future = asyncio.get_running_loop().create_future()
        if self._refusal is not None:
            future.set_exception(self._refusal)
        else:
            future.set_result(dict.fromkeys(partitions, ErrorCode.NONE))
        return future


FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
EXISTING = 2 * ELEMENTS_PER_PART
"""Number of partitions of the topic in the tests of AddPartitionsToTxn."""


@pytest.mark.parametrize(
    ("transactions", "missing", "existing_error", "added"),
    [
        (Transactions(), 0, ErrorCode.NONE, EXISTING),
        (Transactions(), EXISTING, ErrorCode.OPERATION_NOT_ATTEMPTED, 0),
        (Transactions(Refusal(FENCED)), 0, FENCED, EXISTING),
    ],
    ids=["added", "missing partitions", "refused"],
)
async def test_large_request_of_a_client_adds_all_partitions_in_slices_or_none(
    monkeypatch: pytest.MonkeyPatch, transactions: Transactions, missing: int, existing_error: ErrorCode, added: int
) -> None:
    count, indexes = Count(), range(EXISTING + missing)
    monkeypatch.setattr(
        add_partitions_to_txn,
        "AddPartitionsToTxnPartitionResult",
        counted(count, AddPartitionsToTxnPartitionResult),
    )
    handler_context = context_of(3, image([topic_image("t", 1, [1] * EXISTING)]))
    services_of(handler_context).transactions = transactions
    names = [AddPartitionsToTxnTopic(name="t", partitions=list(indexes))]
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="id", v3_and_below_topics=names)
    response = await count.during(response_of(add_partitions_to_txn.handle(handler_context, request)))
    [result] = response.results_by_topic_v3_and_below
    errors = {row.partition_index: row.partition_error_code for row in result.results_by_partition}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {index: existing_error if index < EXISTING else unknown for index in indexes}
    assert len(transactions.added) == added
    assert 0 < count.largest <= ELEMENTS_PER_PART
    assert handler_context.charge == len(indexes) * DISTINCT_BYTES


class Work:
    """Fake work on a large request: it records the reserved bytes, the turns and the encoded elements."""

    def __init__(self) -> None:
        self.held = 0
        self.turns: list[int] = []
        """Reserved bytes at each turn."""
        self.built: list[tuple[int, list[str]]] = []
        """(Reserved bytes, items) at each call of `results_of`."""

    async def turn(self) -> None:
        self.turns.append(self.held)
        await asyncio.sleep(0)

    @contextlib.contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        self.held += count
        yield
        self.held -= count

    async def pack(self, message: type[MetadataResponse], elements: list[Any]) -> tuple[str, ...]:
        assert message is MetadataResponse
        return tuple(element.name for element in elements)

    async def results_of(self, names: Sequence[str]) -> list[MetadataResponseTopic]:
        self.built.append((self.held, list(names)))
        return [MetadataResponseTopic(name=name) for name in names if name != "hidden"]


class Charges:
    """Fake session that records the bytes that are reserved until the response is sent."""

    def __init__(self, work: Work) -> None:
        self.bytes: list[int] = []
        self.charge = self.bytes.append
        self.begin_large = lambda _context: contextlib.nullcontext(work)


async def test_small_results_are_reserved_until_the_response_and_built_in_one_piece() -> None:
    work, reserved = Work(), list[int]()
    context: Any = context_of(1, image())
    context.charge, context.session.on_charge = 1, reserved.append
    context.session.begin_large = lambda _context: contextlib.nullcontext(work)
    names = ["a", "hidden", "b"]
    built = await completed(
        collect_charged(context, MetadataResponse, names, lambda _name: RUN_BYTES_MAX // 3, work.results_of, response)
    )
    assert [topic.name for topic in built.topics] == ["a", "b"]
    assert (reserved, context.charge) == ([RUN_BYTES_MAX // 3 * 3], 1 + RUN_BYTES_MAX // 3 * 3)
    assert (work.turns, work.built, context.encode_in_slices) == ([], [(0, names)], False)


async def test_large_results_are_reserved_before_they_are_built_and_encoded_in_runs() -> None:
    work = Work()
    context: Any = SimpleNamespace(charge=0, encode_in_slices=False, session=Charges(work))
    sizes = {"a": 1, "b": RUN_BYTES_MAX - 1, "huge": 10 * RUN_BYTES_MAX, "hidden": RUN_BYTES_MAX, "c": 5}
    built = await completed(
        collect_charged(context, MetadataResponse, list(sizes), sizes.__getitem__, work.results_of, response)
    )
    assert built.topics == [("a", "b"), ("huge",), ("c",)]
    assert work.built == [
        (RUN_BYTES_MAX, ["a", "b"]),
        (10 * RUN_BYTES_MAX, ["huge"]),
        (RUN_BYTES_MAX, ["hidden"]),
        (5, ["c"]),
    ]
    assert set(work.turns) == {0}, "nothing is held while the request waits for the byte budget"
    assert len(work.turns) > len(work.built)
    assert (context.session.bytes, context.encode_in_slices) == ([], True)


async def test_large_results_of_a_forwarded_request_are_built_in_one_piece() -> None:
    work, handler_context = Work(), context_of(1, image())
    assert handler_context.session.begin_large is None
    built = await completed(
        collect_charged(
            handler_context, MetadataResponse, ["a"], lambda _name: 2 * RUN_BYTES_MAX, work.results_of, response
        )
    )
    assert [topic.name for topic in built.topics] == ["a"]
    assert not handler_context.encode_in_slices


async def test_memory_of_built_elements_is_reserved_while_they_are_encoded() -> None:
    """A single topic can have more partitions than one slice."""
    work, held = Work(), []

    async def pack(_message: type[MetadataResponse], elements: list[Any]) -> str:
        held.append(work.held)
        return ",".join(element.name for element in elements)

    work.pack = pack  # type: ignore[method-assign, assignment]
    context: Any = SimpleNamespace(encode_in_slices=False, session=Charges(work))
    partitions = 5 * ELEMENTS_PER_PART
    results = ((topic, [0] * partitions) for topic in topics(2))
    built = await completed(collect(context, MetadataResponse, results, 2 * partitions, response))
    assert built.topics == ["t0", "t1"]
    assert held == [(1 + partitions) * ELEMENT_BYTES] * 2
    assert set(work.turns) == {0}


async def test_memory_of_pieces_is_reserved_until_their_result_is_encoded() -> None:
    work = Work()
    context: Any = SimpleNamespace(encode_in_slices=False, session=Charges(work))
    piece = [0] * ELEMENTS_PER_PART
    results = [(None, piece), (None, piece), (topics(1)[0], [0]), (MetadataResponseTopic(name="small"), [0])]
    built = await completed(collect(context, MetadataResponse, results, 2 * ELEMENTS_PER_PART + 2, response))
    assert built.topics == [("t0",), MetadataResponseTopic(name="small")]
    of_piece = (1 + ELEMENTS_PER_PART) * ELEMENT_BYTES
    assert (work.turns, work.held) == ([of_piece, 2 * of_piece, 0], 0)


async def test_topic_with_many_partitions_is_described_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    count, leaders = Count(), [1] * (3 * ELEMENTS_PER_PART + 1)
    monkeypatch.setattr(metadata, "_partition_result", counted(count, metadata._partition_result))
    handler_context = context_of(12, image([topic_image("large", 1, leaders), topic_image("small", 2, [1])]))
    response = await count.during(response_of(metadata.handle(handler_context, MetadataRequest(None))))
    described = {topic.name: [row.partition_index for row in topic.partitions] for topic in response.topics}
    assert described == {"large": list(range(len(leaders))), "small": [0]}
    assert 0 < count.largest <= ELEMENTS_PER_PART + 1
    assert handler_context.encode_in_slices


class CountingAuthorizer(AllowAll):
    """Authorizer that allows one name, and counts its decisions between two turns."""

    enabled = True

    def __init__(self, count: Count, allowed: str) -> None:
        self._count = count
        self._allowed = allowed

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        self._count.add(len(names))
        return [name == self._allowed for name in names]


async def test_request_for_all_topics_is_authorized_in_slices() -> None:
    """A decision that is not remembered takes up to 50 µs. A client that may describe nothing gets no results."""
    count, names = Count(), [f"t{number}" for number in range(2 * ELEMENTS_PER_PART)]
    cluster_image = image(topic_image(name, number, [1]) for number, name in enumerate(names))
    handler_context = context_of(12, cluster_image, authorizer=CountingAuthorizer(count, names[-1]))
    response = await count.during(response_of(metadata.handle(handler_context, MetadataRequest(None))))
    assert [topic.name for topic in response.topics] == [names[-1]]
    assert 0 < count.largest <= 2 * metadata.NAMES_PER_CHECK


async def test_large_change_of_configurations_is_checked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(4 * ELEMENTS_PER_PART)]
    changes: list[str] = []
    count = Count()

    async def alter_configs(accepted: Sequence[ConfigChange], **_: Any) -> list[ConfigResult]:
        changes.extend(change.name for change in accepted)
        return [ConfigResult(change.kind, change.name) for change in accepted]

    monkeypatch.setattr(incremental_alter_configs, "_change", counted(count, incremental_alter_configs._change))
    authorizer = Deny((AclOperation.ALTER_CONFIGS, names[0]), (AclOperation.ALTER_CONFIGS, names[-2]))
    controller: Any = SimpleNamespace(alter_configs=alter_configs)
    handler_context = context_of(1, image(), authorizer=authorizer, controller=controller)
    resources = [AlterConfigsResource(RESOURCE_TOPIC, name, []) for name in names]
    request = IncrementalAlterConfigsRequest(resources)
    response = await count.during(incremental_alter_configs.handle(handler_context, request))
    denied = [row.resource_name for row in response.responses if row.error_code]
    assert [row.resource_name for row in response.responses] == names
    assert denied == [names[0], names[-2]]
    assert changes == [name for name in names if name not in denied]
    assert 0 < count.largest <= ELEMENTS_PER_PART
