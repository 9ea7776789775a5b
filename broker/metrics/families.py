"""The metrics of a node, one row per metric.

Names that begin with `kafka_` are those under which Kafka's JMX beans are usually exported: domain, type and name in
lower case. Names that begin with `odradek_` have no counterpart in Kafka.
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
    """A metric: its name, kind, labels and description.

    `kafka` is the JMX bean with the same content, or None.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    kafka: str | None = None


_REQUEST: Final = ("request",)
_PARTITION: Final = ("topic", "partition")
_TOPIC: Final = ("topic",)
_LISTENER: Final = ("listener",)
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_REQUESTS: Final = "kafka.network:type=RequestMetrics,name="
_LOGS: Final = "kafka.log:type=LogManager,name="
_LOG: Final = "kafka.log:type=Log,name="
_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

# fmt: off
_ROWS: Final = (
    # Requests
    Family("kafka_network_requestmetrics_requests_total", _C, _REQUEST, "Requests to which the node has responded.", f"{_REQUESTS}RequestsPerSec,request=,version="),
    Family("kafka_network_requestmetrics_errors_total", _C, ("request", "error"), "Error codes in responses. A response counts once per partition, group or resource with an error.", f"{_REQUESTS}ErrorsPerSec,request=,error="),
    Family("kafka_network_requestmetrics_totaltime_seconds", _H, _REQUEST, "Time from the last byte of a request to its response, including the time for which the request was parked.", f"{_REQUESTS}TotalTimeMs,request="),
    Family("kafka_network_requestmetrics_requestbytes_total", _C, _REQUEST, "Bytes of received requests.", f"{_REQUESTS}RequestBytes,request="),
    Family("kafka_network_requestmetrics_responsebytes_total", _C, _REQUEST, "Bytes of sent responses.", f"{_REQUESTS}ResponseBytes,request="),
    Family("kafka_server_socketservermetrics_connection_count", _G, (), "Open connections of clients and brokers.", "kafka.server:type=socket-server-metrics,name=connection-count"),
    Family("kafka_server_socketservermetrics_successful_authentication_total", _C, _LISTENER, "SASL logins that succeeded.", "kafka.server:type=socket-server-metrics,listener=,networkProcessor=,name=successful-authentication-total"),
    Family("kafka_server_socketservermetrics_failed_authentication_total", _C, _LISTENER, "Failed TLS handshakes and failed SASL logins.", "kafka.server:type=socket-server-metrics,listener=,networkProcessor=,name=failed-authentication-total"),
    Family("kafka_server_socketservermetrics_successful_reauthentication_total", _C, _LISTENER, "Repeated SASL logins of a connection that succeeded (KIP-368).", "kafka.server:type=socket-server-metrics,listener=,networkProcessor=,name=successful-reauthentication-total"),
    Family("kafka_server_socketservermetrics_failed_reauthentication_total", _C, _LISTENER, "Repeated SASL logins of a connection that failed (KIP-368).", "kafka.server:type=socket-server-metrics,listener=,networkProcessor=,name=failed-reauthentication-total"),
    Family("kafka_server_socketservermetrics_expired_connections_killed_count", _G, _LISTENER, "Connections that were closed because their SASL session had expired (KIP-368).", "kafka.server:type=socket-server-metrics,listener=,networkProcessor=,name=expired-connections-killed-count"),
    Family("odradek_byte_budget_used_bytes", _G, (), "Bytes of requests and responses in memory. queued.max.request.bytes bounds them."),
    Family("odradek_event_loop_lag_seconds", _H, (), "Delay of the event loop, measured ten times a second. It replaces Kafka's RequestHandlerAvgIdlePercent and RequestQueueTimeMs."),
    Family("odradek_event_loop_lag_max_seconds", _G, (), "Maximum delay of the event loop since the last scrape."),
    Family("odradek_unexpected_exceptions_total", _C, (), "Exceptions that are bugs, of request handlers and of background work. The log has the traceback of each. Background work goes on after a pause."),
    # Topics
    Family("kafka_server_brokertopicmetrics_bytesin_total", _C, _TOPIC, "Bytes of record batches that this broker appended as the leader.", f"{_TOPICS}BytesInPerSec,topic="),
    Family("kafka_server_brokertopicmetrics_messagesin_total", _C, _TOPIC, "Records that this broker appended as the leader.", f"{_TOPICS}MessagesInPerSec,topic="),
    Family("kafka_server_brokertopicmetrics_bytesout_total", _C, _TOPIC, "Bytes of the record batches that consumers fetched from this broker.", f"{_TOPICS}BytesOutPerSec,topic="),
    # Partitions
    Family("kafka_server_replicamanager_partitioncount", _G, (), "Partitions with a replica on this broker.", f"{_REPLICAS}PartitionCount"),
    Family("kafka_server_replicamanager_leadercount", _G, (), "Partitions that this broker leads.", f"{_REPLICAS}LeaderCount"),
    Family("kafka_server_replicamanager_underreplicatedpartitions", _G, (), "Partitions that this broker leads with fewer in-sync replicas than replicas.", f"{_REPLICAS}UnderReplicatedPartitions"),
    Family("kafka_server_replicamanager_underminisrpartitioncount", _G, (), "Partitions that this broker leads with fewer in-sync replicas than min.insync.replicas. Producers with acks=all receive NOT_ENOUGH_REPLICAS.", f"{_REPLICAS}UnderMinIsrPartitionCount"),
    Family("kafka_server_replicamanager_offlinereplicacount", _G, (), "Replicas on this broker that are offline after a failed disk operation.", f"{_REPLICAS}OfflineReplicaCount"),
    Family("kafka_cluster_partition_insyncreplicascount", _G, _PARTITION, "In-sync replicas of a partition that this broker leads.", "kafka.cluster:type=Partition,name=InSyncReplicasCount,topic=,partition="),
    Family("kafka_cluster_partition_replicascount", _G, _PARTITION, "Replicas of a partition that this broker leads.", "kafka.cluster:type=Partition,name=ReplicasCount,topic=,partition="),
    Family("kafka_cluster_partition_laststableoffsetlag", _G, _PARTITION, "High watermark minus last stable offset, of a partition that this broker leads: the offsets that read_committed consumers cannot read before open transactions end.", "kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=,partition="),
    Family("kafka_log_log_size", _G, _PARTITION, "Size of the log's segments in bytes.", f"{_LOG}Size,topic=,partition="),
    Family("kafka_log_log_logstartoffset", _G, _PARTITION, "Log start offset: the first offset that can be read.", f"{_LOG}LogStartOffset,topic=,partition="),
    Family("kafka_log_log_logendoffset", _G, _PARTITION, "Log end offset: the offset of the next record.", f"{_LOG}LogEndOffset,topic=,partition="),
    Family("kafka_log_log_numlogsegments", _G, _PARTITION, "Number of segments of the log.", f"{_LOG}NumLogSegments,topic=,partition="),
    # Recovery of logs at the start
    Family("kafka_log_logmanager_remaininglogstorecover", _G, ("dir",), "Logs that the start of the node has not opened or recovered yet.", f"{_LOGS}remainingLogsToRecover,dir="),
    Family("kafka_log_logmanager_remainingsegmentstorecover", _G, ("dir", "threadNum"), "Segments that a recovery thread still has to recover in its present log.", f"{_LOGS}remainingSegmentsToRecover,dir=,threadNum="),
    Family("odradek_log_manager_logs_found", _G, ("dir",), "Logs that the start of the node has found in the data directory."),
    # The cluster, on the active controller
    Family("kafka_controller_kafkacontroller_activecontrollercount", _G, (), "1 on the active controller, 0 on the other nodes.", f"{_CONTROLLER}ActiveControllerCount"),
    Family("kafka_controller_kafkacontroller_offlinepartitionscount", _G, (), "Partitions without a leader. 0 on nodes that are not the active controller.", f"{_CONTROLLER}OfflinePartitionsCount"),
    Family("kafka_controller_kafkacontroller_activebrokercount", _G, (), "Registered brokers that are not fenced. 0 on nodes that are not the active controller.", f"{_CONTROLLER}ActiveBrokerCount"),
    Family("kafka_controller_kafkacontroller_fencedbrokercount", _G, (), "Registered brokers that are fenced. 0 on nodes that are not the active controller.", f"{_CONTROLLER}FencedBrokerCount"),
    Family("kafka_controller_kafkacontroller_globaltopiccount", _G, (), "Topics of the cluster. 0 on nodes that are not the active controller.", f"{_CONTROLLER}GlobalTopicCount"),
    Family("kafka_controller_kafkacontroller_globalpartitioncount", _G, (), "Partitions of the cluster. 0 on nodes that are not the active controller.", f"{_CONTROLLER}GlobalPartitionCount"),
    # Transactions of this coordinator
    Family("odradek_transactions", _G, ("state",), "Transactional ids of this coordinator, by state."),
    Family("odradek_transactions_committed_total", _C, (), "Transactions that this coordinator decided to commit."),
    Family("odradek_transactions_aborted_total", _C, (), "Transactions that this coordinator decided to abort: for a producer, an operator, a time-out or a new producer epoch."),
    Family("odradek_transactions_timed_out_total", _C, (), "Transactions that this coordinator aborted after their transaction.timeout.ms was over."),
    Family("odradek_transactions_fenced_total", _C, (), "Producers that this coordinator fenced because another producer initialized the same transactional id."),
    Family("odradek_transactions_oldest_open_seconds", _G, (), "Age of the oldest open transaction of this coordinator. 0 without an open transaction."),
    Family("odradek_transactions_in_doubt", _G, (), "Ongoing transactions of two-phase commits (KIP-939) of this coordinator. No time-out aborts them."),
    Family("odradek_transactions_oldest_in_doubt_seconds", _G, (), "Age of the oldest of these transactions. 0 without one. An age above the longest absence of an owner means that an operator must act."),
    # Groups of this coordinator
    Family("kafka_server_group_coordinator_metrics_group_count", _G, ("protocol", "state"), "Groups of this coordinator, by protocol and state.", "kafka.server:type=group-coordinator-metrics,name=group-count,protocol= and consumer-group-count,state="),
    Family("odradek_group_offsets", _G, (), "Committed offsets that this coordinator stores. As NumOffsets of Kafka's GroupMetadataManager."),
    Family("odradek_group_lag", _G, ("group",), "High watermarks minus committed offsets of a group, summed over the partitions with a replica on this broker. Kafka's clients export records-lag instead."),
    Family("odradek_group_stable_lag", _G, ("group",), "Last stable offsets minus committed offsets of a group, summed over the same partitions: the offsets that read_committed consumers can read now."),
    # Failure detector
    Family("odradek_membership_datagrams_received_total", _C, (), "Datagrams of the failure detector that this node received and admitted."),
    Family("odradek_membership_datagrams_sent_total", _C, (), "Datagrams of the failure detector that this node sent."),
    Family("odradek_membership_datagrams_dropped_total", _C, ("reason",), "Datagrams that the failure detector received and dropped: forged, recorded, from another address, of an ended process, too many at a time. A few `replayed` and `unverified` ones are normal, because networks duplicate and reorder datagrams."),
    # Records of coordinators
    Family("odradek_coordinator_blocked_ids", _G, ("topic",), "Transactional ids or groups that this coordinator does not serve, because it cannot read a record of them. The log of the broker has the offsets."),
    Family("odradek_coordinator_ignored_records", _G, ("topic",), "Records of unknown types that this coordinator has ignored in its loads."),
    # Metrics
    Family("odradek_metrics_left_out", _G, ("kind",), "Topics, partitions or groups without rows, because their number exceeds the limit on this page."),
)
# fmt: on
FAMILIES: Final = {family.name: family for family in _ROWS}
assert len(FAMILIES) == len(_ROWS)
