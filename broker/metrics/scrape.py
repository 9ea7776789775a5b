"""Look up the values of all metrics, in steps of bounded work. Between the steps, the node serves requests."""

from asyncio import sleep
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from odradek.broker.dispatch.request_metrics import BOUNDS_US, Histogram
from odradek.broker.metrics.families import FAMILIES, Family, Kind
from odradek.broker.metrics.loop_lag import US_PER_S
from odradek.broker.security.authentication import LoginCounts
from odradek.cluster.membership.messages import Rejected
from odradek.cluster.metadata.topic_names import is_internal
from odradek.coordinator.group.offset_store import unpack
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.txn_state import TxnState

if TYPE_CHECKING:
    from odradek.broker.contexts import BrokerContext, NodeContext, QuorumContext
    from odradek.broker.dispatch.request_metrics import ApiMetrics
    from odradek.broker.metrics.loop_lag import LoopLag
    from odradek.broker.network.connection import Connection
    from odradek.broker.network.server_state import ServerState
    from odradek.broker.partition.partition import Partition
    from odradek.broker.partition.registry import Partitions
    from odradek.broker.process.unexpected import UnexpectedExceptions
    from odradek.broker.quorum.failure_detector import FailureDetector
    from odradek.broker.security.authentication import Authentication
    from odradek.coordinator.group.core import GroupShard
    from odradek.coordinator.group.service import GroupCoordinator
    from odradek.coordinator.txn.core import TransactionShard
    from odradek.coordinator.txn.service import TransactionCoordinator
    from odradek.coordinator.unreadable import UnreadableRecords
    from odradek.runtime.clock import Clock
    from odradek.runtime.engine import Engine
    from odradek.storage.data_directory.log_manager import LogManager

TOPICS_MAX: Final = 500
"""Maximum topics with rows per scrape: those with the most traffic. `OTHERS` is the sum of the remaining ones.

Bounds the time series that a cluster with many topics causes in Prometheus; the other limits do the same.
"""
PARTITIONS_MAX: Final = 1_000
"""Maximum partitions with rows per scrape, by name, with partitions of internal topics last."""
GROUPS_MAX: Final = 500
"""Maximum groups with rows per scrape: those with the largest lag."""
OTHERS: Final = "_others"
"""Label of the sum of topics without rows."""
STEP: Final = 200
"""Partitions, groups or transactions per step. They take well under a millisecond."""
TEXT_STEP: Final = 200
"""Samples of one metric per step of the rendering."""

Sample = tuple[str, tuple[str, ...], Any]
"""Name, values of the labels, and value: a number or a `Histogram`."""


class SingleMetricRegistry:
    """A collector of one metric, as `generate_latest` needs it."""

    def __init__(self, metric: Any) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Any]:
        yield self._metric


Source = Callable[[], AsyncIterator[Sample]]
"""Yields the current samples of one part of the node."""


async def exposition(sources: Sequence[Source]) -> bytes:
    """Return the samples of all `sources` in the Prometheus text format."""
    by_name: dict[str, list[Sample]] = {}
    for source in sources:
        async for sample in source():
            by_name.setdefault(sample[0], []).append(sample)
    pieces = []
    for name, family in FAMILIES.items():
        rows = iter(by_name.get(name, ()))
        head = True
        while part := list(islice(rows, TEXT_STEP)):
            text = generate_latest(SingleMetricRegistry(_metric(family, part)))
            pieces.append(text if head else _without_head(text))
            head = False
            await sleep(0)
    return b"".join(pieces)


def _without_head(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))


def _metric(family: Family, part: list[Sample]) -> Any:
    if family.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.doc, labels=family.labels)
        for _, labels, value in part:
            histogram.add_metric(labels, buckets=_buckets(value), sum_value=value.sum_us / US_PER_S)
        return histogram
    metric_class = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = metric_class(family.name, family.doc, labels=family.labels)
    for _, labels, value in part:
        metric.add_metric(labels, value)
    return metric


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return (upper bound in seconds, cumulative count) per bucket, as Prometheus expects."""
    total, rows = 0, []
    for bound, count in zip([*(str(us / US_PER_S) for us in BOUNDS_US), "+Inf"], histogram.buckets, strict=True):
        total += count
        rows.append((bound, float(total)))
    return rows


async def server_samples(
    shared: "ServerState[Connection]",
    metrics: "Mapping[int, ApiMetrics]",
    lag: "LoopLag",
    unexpected: "UnexpectedExceptions",
) -> AsyncIterator[Sample]:
    """Yield the samples of requests, connections, the event loop and the process."""
    for sample in _requests(metrics):
        yield sample
    yield "kafka_server_socketservermetrics_connection_count", (), len(shared.connections)
    yield "odradek_byte_budget_used_bytes", (), shared.budget.used_bytes
    yield "odradek_event_loop_lag_seconds", (), lag.times
    yield "odradek_event_loop_lag_max_seconds", (), lag.take_max() / US_PER_S
    yield "odradek_unexpected_exceptions_total", (), unexpected.count


async def login_samples(shared: "ServerState[Connection]", authentication: "Authentication") -> AsyncIterator[Sample]:
    """Yield the counts of SASL logins and of failed TLS handshakes."""
    prefix, handshakes = "kafka_server_socketservermetrics_", shared.failed_handshakes
    for listener in {**handshakes, **authentication.counts}:
        counts, labels = authentication.counts.get(listener, LoginCounts()), (listener,)
        yield f"{prefix}successful_authentication_total", labels, counts.successful
        yield f"{prefix}failed_authentication_total", labels, counts.failed + handshakes[listener]
        yield f"{prefix}successful_reauthentication_total", labels, counts.successful_repeated
        yield f"{prefix}failed_reauthentication_total", labels, counts.failed_repeated
        yield f"{prefix}expired_connections_killed_count", labels, counts.expired


async def loading_samples(logs: "LogManager") -> AsyncIterator[Sample]:
    """Yield the progress of the recovery of logs at the start of the node."""
    loading, directory = logs.loading, logs.directory.path
    yield "kafka_log_logmanager_remaininglogstorecover", (directory,), loading.remaining
    for number, segments in enumerate(loading.remaining_segments):
        yield "kafka_log_logmanager_remainingsegmentstorecover", (directory, str(number)), segments
    yield "odradek_log_manager_logs_found", (directory,), loading.total


async def broker_samples(
    node: "NodeContext", quorum: "QuorumContext", broker: "BrokerContext"
) -> AsyncIterator[Sample]:
    """Yield the samples of the registered broker: partitions, cluster, transactions and groups."""
    async for sample in _partitions(broker.partitions):
        yield sample
    async for sample in controller_samples(node, quorum):
        yield sample
    async for sample in _transactions(broker.transactions, node.clock):
        yield sample
    async for sample in _groups(broker.groups, broker.partitions):
        yield sample


async def detector_samples(detector: "FailureDetector") -> AsyncIterator[Sample]:
    """Yield the samples of the failure detector."""
    traffic = detector.traffic
    yield "odradek_membership_datagrams_received_total", (), traffic.received
    yield "odradek_membership_datagrams_sent_total", (), traffic.sent
    for reason in Rejected:
        yield "odradek_membership_datagrams_dropped_total", (reason.name.lower(),), traffic.dropped[reason]
    yield "odradek_membership_datagrams_dropped_total", ("overflow",), traffic.overflow


def _requests(metrics: "Mapping[int, ApiMetrics]") -> Iterator[Sample]:
    for api in metrics.values():
        count = api.times.count
        if not count:
            continue
        labels = (api.name,)
        yield "kafka_network_requestmetrics_requests_total", labels, count
        yield "kafka_network_requestmetrics_totaltime_seconds", labels, api.times
        yield "kafka_network_requestmetrics_requestbytes_total", labels, api.bytes_in
        yield "kafka_network_requestmetrics_responsebytes_total", labels, api.bytes_out
        for code, count in api.errors.items():
            yield "kafka_network_requestmetrics_errors_total", (api.name, error_name(code)), count


def error_name(code: int) -> str:
    """Return the name of an error code, or the number of a code that only another broker knows."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


# ---- partitions -----------------------------------------------------------------------------------------------------


async def _partitions(partitions: "Partitions") -> AsyncIterator[Sample]:
    hosted = list(partitions)
    counts: Counter[str] = Counter()
    topics: dict[str, list[int]] = {}
    for position, partition in enumerate(hosted):
        traffic = partition.traffic
        sums = topics.setdefault(partition.topic, [0, 0, 0])
        for index, value in enumerate((traffic.bytes_in, traffic.records_in, traffic.bytes_out)):
            sums[index] += value
        counts["leadercount"] += partition.leads
        counts["offlinereplicacount"] += not partition.online
        if partition.leader_term is not None:
            replicas = partition.leader_term.replicas
            counts["underreplicatedpartitions"] += len(replicas.isr) < len(replicas.replicas)
            counts["underminisrpartitioncount"] += len(replicas.isr) < replicas.min_isr
        if position % STEP == 0:
            await sleep(0)
    counts["partitioncount"] = len(hosted)
    for name in (
        "partitioncount",
        "leadercount",
        "underreplicatedpartitions",
        "underminisrpartitioncount",
        "offlinereplicacount",
    ):
        yield f"kafka_server_replicamanager_{name}", (), counts[name]
    for sample in _topics(topics):
        yield sample
    hosted.sort(key=lambda partition: (is_internal(partition.topic), partition.topic, partition.index))
    yield "odradek_metrics_left_out", ("partition",), max(len(hosted) - PARTITIONS_MAX, 0)
    for position, partition in enumerate(hosted[:PARTITIONS_MAX]):
        for sample in _partition(partition):
            yield sample
        if position % STEP == 0:
            await sleep(0)


def _topics(topics: dict[str, list[int]]) -> Iterator[Sample]:
    busiest = sorted(topics.items(), key=lambda item: -item[1][0] - item[1][2])
    shown = dict(busiest[:TOPICS_MAX])
    if remaining := busiest[TOPICS_MAX:]:
        shown[OTHERS] = [sum(column) for column in zip(*(sums for _, sums in remaining), strict=True)]
    yield "odradek_metrics_left_out", ("topic",), len(remaining)
    for topic, sums in shown.items():
        for name, value in zip(("bytesin", "messagesin", "bytesout"), sums, strict=True):
            yield f"kafka_server_brokertopicmetrics_{name}_total", (topic,), value


def _partition(partition: "Partition") -> Iterator[Sample]:
    labels, log = (partition.topic, str(partition.index)), partition.log
    yield "kafka_log_log_size", labels, log.segments.size
    yield "kafka_log_log_logstartoffset", labels, log.log_start_offset
    yield "kafka_log_log_logendoffset", labels, log.log_end_offset
    yield "kafka_log_log_numlogsegments", labels, len(log.segments)
    if partition.leader_term is not None:
        replicas = partition.leader_term.replicas
        yield "kafka_cluster_partition_insyncreplicascount", labels, len(replicas.isr)
        yield "kafka_cluster_partition_replicascount", labels, len(replicas.replicas)
        yield "kafka_cluster_partition_laststableoffsetlag", labels, log.high_watermark - log.last_stable_offset


async def controller_samples(node: "NodeContext", quorum: "QuorumContext") -> AsyncIterator[Sample]:
    """Yield the samples of the controller of the node. A node without the active controller has zeros."""
    active = quorum.controller.is_active
    counts = dict.fromkeys(
        (
            "offlinepartitionscount",
            "activebrokercount",
            "fencedbrokercount",
            "globaltopiccount",
            "globalpartitioncount",
        ),
        0,
    )
    if active:
        image = node.metadata.image
        counts["activebrokercount"] = sum(not broker.fenced for broker in image.brokers.values())
        counts["fencedbrokercount"] = len(image.brokers) - counts["activebrokercount"]
        counts["globaltopiccount"] = len(image.topics)
        for position, topic in enumerate(image.topics.values()):
            counts["globalpartitioncount"] += len(topic.partitions)
            counts["offlinepartitionscount"] += sum(not partition.has_leader for partition in topic.partitions.values())
            if position % STEP == 0:
                await sleep(0)
    for name, value in {"activecontrollercount": int(active), **counts}.items():
        yield f"kafka_controller_kafkacontroller_{name}", (), value


# ---- coordinators ---------------------------------------------------------------------------------------------------


async def _transactions(coordinator: "TransactionCoordinator", clock: "Clock") -> AsyncIterator[Sample]:
    now_ms = clock.wall_ms()
    states: Counter[TxnState] = Counter(dict.fromkeys(TxnState, 0))
    oldest_ms = oldest_in_doubt_ms = now_ms
    in_doubt = 0
    for engine in list(coordinator.shards.values()):
        core: TransactionShard = engine.shard  # type: ignore[assignment]
        transactions = list(core.transactions.values())
        for start in range(0, len(transactions), STEP):
            for transaction in transactions[start : start + STEP]:
                states[transaction.state] += 1
                if transaction.state is TxnState.ONGOING:
                    oldest_ms = min(oldest_ms, transaction.start_ms)
                    if transaction.never_times_out:
                        in_doubt += 1
                        oldest_in_doubt_ms = min(oldest_in_doubt_ms, transaction.start_ms)
            await sleep(0)
    for state, count in states.items():
        yield "odradek_transactions", (state.kafka_name,), count
    yield "odradek_transactions_oldest_open_seconds", (), (now_ms - oldest_ms) / 1_000
    yield "odradek_transactions_in_doubt", (), in_doubt
    yield "odradek_transactions_oldest_in_doubt_seconds", (), (now_ms - oldest_in_doubt_ms) / 1_000
    for sample in _unreadable(TRANSACTION_STATE, coordinator.shards.values()):
        yield sample
    stats = coordinator.stats
    yield "odradek_transactions_committed_total", (), stats.committed
    yield "odradek_transactions_aborted_total", (), stats.aborted
    yield "odradek_transactions_timed_out_total", (), stats.timed_out
    yield "odradek_transactions_fenced_total", (), stats.fenced


def _unreadable(topic: str, engines: "Iterable[Engine[Any, Any]]") -> Iterator[Sample]:
    """Yield the blocked ids and the ignored records of the shards of a coordinator."""
    records: list[UnreadableRecords] = [engine.shard.unreadable for engine in engines]  # type: ignore[attr-defined]
    yield "odradek_coordinator_blocked_ids", (topic,), sum(each.blocked for each in records)
    yield "odradek_coordinator_ignored_records", (topic,), sum(each.ignored for each in records)


async def _groups(groups: "GroupCoordinator", partitions: "Partitions") -> AsyncIterator[Sample]:
    counts: Counter[tuple[str, str]] = Counter()
    lags: list[tuple[int, int, str]] = []
    offsets = 0
    for engine in list(groups.shards.values()):
        core: GroupShard = engine.shard  # type: ignore[assignment]
        offsets += core.state.offsets.count
        for position, (name, group) in enumerate(list(core.state.groups.items())):
            counts[group.kind.value, group.state_name] += 1
            lag = await _lag(partitions, core, name)
            if lag is not None:
                lags.append((*lag, name))
            if position % STEP == 0:
                await sleep(0)
    for labels, count in counts.items():
        yield "kafka_server_group_coordinator_metrics_group_count", labels, count
    yield "odradek_group_offsets", (), offsets
    for sample in _unreadable(CONSUMER_OFFSETS, groups.shards.values()):
        yield sample
    lags.sort(reverse=True)
    yield "odradek_metrics_left_out", ("group",), max(len(lags) - GROUPS_MAX, 0)
    for lag_records, stable_lag, name in lags[:GROUPS_MAX]:
        yield "odradek_group_lag", (name,), lag_records
        yield "odradek_group_stable_lag", (name,), stable_lag


async def _lag(partitions: "Partitions", core: "GroupShard", group: str) -> tuple[int, int] | None:
    """Return a group's lag to the high watermarks and to the last stable offsets, over partitions with a replica here.

    None if the group has committed no offset of such a partition.
    """
    lag = stable = 0
    has_replica = False
    for topic, offsets in list(core.state.offsets.topics(group).items()):
        for position, (index, packed) in enumerate(list(offsets.items()), 1):
            if position % STEP == 0:
                await sleep(0)
            partition = partitions.get(topic, index)
            if partition is not None:
                has_replica = True
                offset, log = unpack(packed).offset, partition.log
                lag += max(log.high_watermark - offset, 0)
                stable += max(log.last_stable_offset - offset, 0)
    return (lag, stable) if has_replica else None
