"""Every metric as a row. Names that begin with `kafka_` are Kafka's, as its JMX beans are usually exported (domain, type and name
in lower case); those that begin with `odradek_` have no counterpart, or mean something that Kafka does not export.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """`kafka` is the bean and attribute that it corresponds to; None where there is none."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    kafka: str | None = None


_REQUEST: Final = ("request",)
_PARTITION: Final = ("topic", "partition")
_TOPIC: Final = ("topic",)
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_REQUESTS: Final = "kafka.network:type=RequestMetrics,name="
_LOG: Final = "kafka.log:type=Log,name="
_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

# fmt: off
_ROWS: Final = (
    # Requests
    Family("kafka_network_requestmetrics_requests_total", _C, _REQUEST, "Requests answered.", f"{_REQUESTS}RequestsPerSec,request=,version="),
    Family("kafka_network_requestmetrics_errors_total", _C, ("request", "error"), "Error codes in answers, one for each partition, group or resource that was refused.", f"{_REQUESTS}ErrorsPerSec,request=,error="),
    Family("kafka_network_requestmetrics_totaltime_seconds", _H, _REQUEST, "From the whole request to its answer, what it waited for included.", f"{_REQUESTS}TotalTimeMs,request="),
    Family("kafka_network_requestmetrics_requestbytes_total", _C, _REQUEST, "Bytes of requests.", f"{_REQUESTS}RequestBytes,request="),
    Family("kafka_network_requestmetrics_responsebytes_total", _C, _REQUEST, "Bytes of answers.", f"{_REQUESTS}ResponseBytes,request="),
    Family("kafka_server_socketservermetrics_connection_count", _G, (), "Connections of clients and brokers.", "kafka.server:type=socket-server-metrics,name=connection-count"),
    Family("odradek_byte_budget_used_bytes", _G, (), "Requests and answers in memory (of queued.max.request.bytes)."),
    Family("odradek_event_loop_lag_seconds", _H, (), "How late the event loop is, looked at ten times a second. Kafka's nearest are RequestHandlerAvgIdlePercent and RequestQueueTimeMs."),
    Family("odradek_event_loop_lag_max_seconds", _G, (), "The worst of that since the last scrape."),
    # Topics
    Family("kafka_server_brokertopicmetrics_bytesin_total", _C, _TOPIC, "Bytes appended as the leader.", f"{_TOPICS}BytesInPerSec,topic="),
    Family("kafka_server_brokertopicmetrics_messagesin_total", _C, _TOPIC, "Records appended as the leader.", f"{_TOPICS}MessagesInPerSec,topic="),
    Family("kafka_server_brokertopicmetrics_bytesout_total", _C, _TOPIC, "Bytes read by consumers.", f"{_TOPICS}BytesOutPerSec,topic="),
    # Partitions
    Family("kafka_server_replicamanager_partitioncount", _G, (), "Replicas on this broker.", f"{_REPLICAS}PartitionCount"),
    Family("kafka_server_replicamanager_leadercount", _G, (), "Partitions that this broker leads.", f"{_REPLICAS}LeaderCount"),
    Family("kafka_server_replicamanager_underreplicatedpartitions", _G, (), "Partitions led here of which not all replicas are in sync.", f"{_REPLICAS}UnderReplicatedPartitions"),
    Family("kafka_server_replicamanager_underminisrpartitioncount", _G, (), "Partitions led here with fewer replicas in sync than min.insync.replicas.", f"{_REPLICAS}UnderMinIsrPartitionCount"),
    Family("kafka_server_replicamanager_offlinereplicacount", _G, (), "Replicas here that a disk has refused something.", f"{_REPLICAS}OfflineReplicaCount"),
    Family("kafka_cluster_partition_insyncreplicascount", _G, _PARTITION, "Replicas in sync, of a partition led here.", "kafka.cluster:type=Partition,name=InSyncReplicasCount,topic=,partition="),
    Family("kafka_cluster_partition_replicascount", _G, _PARTITION, "Replicas, of a partition led here.", "kafka.cluster:type=Partition,name=ReplicasCount,topic=,partition="),
    Family("kafka_cluster_partition_laststableoffsetlag", _G, _PARTITION, "Offsets between the last stable offset and the high watermark, of a partition led here: what open transactions hold back.", "kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=,partition="),
    Family("kafka_log_log_size", _G, _PARTITION, "Bytes of the log.", f"{_LOG}Size,topic=,partition="),
    Family("kafka_log_log_logstartoffset", _G, _PARTITION, "The first offset.", f"{_LOG}LogStartOffset,topic=,partition="),
    Family("kafka_log_log_logendoffset", _G, _PARTITION, "The offset behind the last.", f"{_LOG}LogEndOffset,topic=,partition="),
    Family("kafka_log_log_numlogsegments", _G, _PARTITION, "Segments of the log.", f"{_LOG}NumLogSegments,topic=,partition="),
    # The cluster, as the active controller sees it
    Family("kafka_controller_kafkacontroller_activecontrollercount", _G, (), "1 on the active controller, 0 elsewhere.", f"{_CONTROLLER}ActiveControllerCount"),
    Family("kafka_controller_kafkacontroller_offlinepartitionscount", _G, (), "Partitions without a leader; on the active controller, 0 elsewhere.", f"{_CONTROLLER}OfflinePartitionsCount"),
    Family("kafka_controller_kafkacontroller_activebrokercount", _G, (), "Brokers that are not fenced; on the active controller, 0 elsewhere.", f"{_CONTROLLER}ActiveBrokerCount"),
    Family("kafka_controller_kafkacontroller_fencedbrokercount", _G, (), "Brokers that are fenced; on the active controller, 0 elsewhere.", f"{_CONTROLLER}FencedBrokerCount"),
    Family("kafka_controller_kafkacontroller_globaltopiccount", _G, (), "Topics; on the active controller, 0 elsewhere.", f"{_CONTROLLER}GlobalTopicCount"),
    Family("kafka_controller_kafkacontroller_globalpartitioncount", _G, (), "Partitions; on the active controller, 0 elsewhere.", f"{_CONTROLLER}GlobalPartitionCount"),
    # Transactions coordinated here
    Family("odradek_transactions", _G, ("state",), "Transactional ids by state."),
    Family("odradek_transactions_committed_total", _C, (), "Decisions to commit."),
    Family("odradek_transactions_aborted_total", _C, (), "Decisions to abort, whoever asked."),
    Family("odradek_transactions_timed_out_total", _C, (), "Those of them that came after the transaction's time was up."),
    Family("odradek_transactions_fenced_total", _C, (), "Producers that a newer one of the same transactional id has replaced."),
    Family("odradek_transactions_oldest_open_seconds", _G, (), "The age of the oldest open transaction; 0 without one."),
    # Groups coordinated here
    Family("kafka_server_group_coordinator_metrics_group_count", _G, ("protocol", "state"), "Groups.", "kafka.server:type=group-coordinator-metrics,name=group-count,protocol= and consumer-group-count,state="),
    Family("odradek_group_offsets", _G, (), "Committed offsets that are kept. Kafka's GroupMetadataManager,name=NumOffsets."),
    Family("odradek_group_lag", _G, ("group",), "Records between what a group has committed and the high watermarks, over the partitions with a replica here. Kafka's clients export records-lag."),
    Family("odradek_group_stable_lag", _G, ("group",), "Likewise to the last stable offsets: what a reader of committed records could read now."),
    # This table
    Family("odradek_metrics_left_out", _G, ("kind",), "Topics, partitions and groups that have no rows of their own, since there are more of them than a named limit."),
)
# fmt: on
FAMILIES: Final = {family.name: family for family in _ROWS}
assert len(FAMILIES) == len(_ROWS)
