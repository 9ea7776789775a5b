"""Configuration of simulated nodes: small segments, few coordinator partitions, short time-outs."""

from random import Random
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.sources import load
from odradek.protocol.sasl.cluster_secret import ClusterSecret
from odradek.protocol.sasl.mechanism import PLAIN
from tests.sim.cluster.users import JAAS
from tests.sim.options.security_options import TOKEN_LIFETIME_MS, TOKEN_VALIDITY_MS
from tests.sim.options.tenants import ADMIN
from tests.sim.world import INTERNAL_PORT, PORT, host_name

if TYPE_CHECKING:
    from odradek.broker.config.properties import Config
    from tests.sim.options.compaction_options import CompactionOptions
    from tests.sim.options.group_options import GroupOptions
    from tests.sim.options.run_options import Options
    from tests.sim.options.security_options import SecurityOptions

ROOT: Final = "/data"
WATERMARKS: Final = f"{ROOT}/replication-offset-checkpoint"
CLUSTER_ID: Final = "c2ltdWxhdGVkY2x1c3Rlcg"
PRODUCER_CHECK_MS: Final = 500
SECRET: Final = b"secret of the simulated cluster, with over 32 bytes"
"""Content of the file that cluster.secret.file names."""
TOKEN_KEY: Final = "key of the delegation tokens of the simulated cluster"


def cluster_secret(seed: int, user: str) -> ClusterSecret:
    """Return the secret for `user`. Its nonces have a random stream of their own."""
    return ClusterSecret(SECRET, Random(f"nonces of {user}, seed {seed}").getrandbits)


def shares_listener(options: "Options") -> bool:
    """Return True if clients and brokers share one listener without authentication."""
    return options.hostile is not None and options.hostile.shared_listener


def _addresses(options: "Options", host: str) -> str:
    shared = f"{'PLAINTEXT' if options.security is None else 'CLIENTS'}://{host}:{PORT}"
    return shared if shares_listener(options) else f"{shared},INTERNAL://{host}:{INTERNAL_PORT}"


def make_config(options: "Options", number: int, incarnation: int = 1) -> "Config":
    """Return the configuration of node `number` for its `incarnation`-th start."""
    settings: dict[str, Any] = {
        "log.dirs": ROOT,
        "node.id": number,
        "listeners": _addresses(options, "0.0.0.0"),
        "advertised.listeners": _addresses(options, host_name(number)),
        "inter.broker.listener.name": "PLAINTEXT" if shares_listener(options) else "INTERNAL",
        "auto.create.topics.enable": "false",
        "log.segment.bytes": options.segment_bytes,
        "log.index.interval.bytes": options.index_interval_bytes,
        "transaction.state.log.num.partitions": options.transaction_partitions,
        "transaction.state.log.segment.bytes": max(options.segment_bytes, 4000),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": options.scan_interval_ms,
        "transactional.id.expiration.ms": options.id_expiration_ms,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 300,
        "replica.high.watermark.checkpoint.interval.ms": 700,
        "log.flush.offset.checkpoint.interval.ms": 900,
        "log.flush.start.offset.checkpoint.interval.ms": 900,
        "log.cleaner.enable": "false",
        "odradek.initial.transaction.version": options.transaction_version,
        "odradek.log.level": "error",
    }
    if options.hostile is not None and options.hostile.creates_topics:
        settings["auto.create.topics.enable"] = "true"
    if options.security is not None:
        settings |= _security_settings(options.security)
    if options.owners:
        settings["transaction.two.phase.commit.enable"] = "true"
    if options.groups is not None:
        settings |= _group_settings(options.groups)
        if options.groups.size_max and (incarnation > 1 or number % 2 == 0):
            settings["group.max.size"] = options.groups.size_max
    if options.compaction is not None:
        settings |= _compaction_settings(options.compaction)
    if options.producer_expiration_ms:
        settings["producer.id.expiration.ms"] = options.producer_expiration_ms
        settings["producer.id.expiration.check.interval.ms"] = PRODUCER_CHECK_MS
    if options.retention_check_ms:
        settings["log.retention.check.interval.ms"] = options.retention_check_ms
        settings["log.initial.task.delay.ms"] = options.retention_check_ms
    if options.flush:
        settings["log.flush.interval.messages"] = 1
    if options.brokers > 1:
        settings |= {name: value for name, value in _cluster_settings(options).items() if name in PROPERTIES}
    return load(environment={}, assignments=[f"{name}={value}" for name, value in settings.items()])


def _security_settings(security: "SecurityOptions") -> dict[str, Any]:
    tokens = {
        "delegation.token.secret.key": TOKEN_KEY,
        "delegation.token.expiry.time.ms": TOKEN_VALIDITY_MS,
        "delegation.token.max.lifetime.ms": TOKEN_LIFETIME_MS,
        "delegation.token.expiry.check.interval.ms": 2_000,
    }
    return {
        **(tokens if security.tokens else {}),
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        "sasl.enabled.mechanisms": f"SCRAM-SHA-256,SCRAM-SHA-512,{PLAIN}",
        "listener.name.clients.plain.sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": security.max_session_ms,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
        "offsets.topic.num.partitions": 1,
    }


def _group_settings(groups: "GroupOptions") -> dict[str, Any]:
    session, heartbeat = groups.session_timeout_ms, groups.session_timeout_ms // 4
    return {
        "offsets.topic.num.partitions": groups.partitions,
        "offsets.topic.segment.bytes": groups.segment_bytes,
        "group.min.session.timeout.ms": 100,
        "group.initial.rebalance.delay.ms": groups.initial_delay_ms,
        "group.consumer.min.session.timeout.ms": 100,
        "group.consumer.session.timeout.ms": session,
        "group.consumer.min.heartbeat.interval.ms": 50,
        "group.consumer.heartbeat.interval.ms": heartbeat,
        "group.consumer.assignment.interval.ms": groups.assignment_interval_ms,
    }


def _compaction_settings(compaction: "CompactionOptions") -> dict[str, Any]:
    return {
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": compaction.backoff_ms,
        "log.cleaner.min.cleanable.ratio": compaction.dirty_ratio,
        "log.cleaner.min.compaction.lag.ms": compaction.lag_ms,
        "log.cleaner.delete.retention.ms": compaction.retention_ms,
        "log.segment.delete.delay.ms": compaction.delete_delay_ms,
        "transaction.state.log.segment.bytes": compaction.segment_bytes,
        "offsets.topic.segment.bytes": compaction.segment_bytes,
    }


def _cluster_settings(options: "Options") -> dict[str, Any]:
    port = PORT if shares_listener(options) else INTERNAL_PORT
    voters = ",".join(f"{number}@{host_name(number)}:{port}" for number in range(1, options.voters + 1))
    return {
        "controller.quorum.voters": voters,
        "odradek.cluster.id": CLUSTER_ID,
        "default.replication.factor": options.replication,
        "min.insync.replicas": options.min_in_sync,
        "transaction.state.log.replication.factor": options.replication,
        "offsets.topic.replication.factor": options.replication,
        "transaction.state.log.min.isr": options.min_in_sync,
        "controller.quorum.election.timeout.ms": options.election_timeout_ms,
        "controller.quorum.fetch.timeout.ms": options.election_timeout_ms * 2,
        "controller.quorum.election.backoff.max.ms": options.election_timeout_ms,
        "broker.heartbeat.interval.ms": options.session_timeout_ms // 4,
        "broker.session.timeout.ms": options.session_timeout_ms,
        "replica.lag.time.max.ms": options.replica_lag_ms,
        "replica.fetch.wait.max.ms": min(500, options.replica_lag_ms // 2),
        "request.timeout.ms": 3000,
        "metadata.log.max.record.bytes.between.snapshots": options.snapshot_bytes,
    }
