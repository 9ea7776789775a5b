"""The configuration of a node, one row per property. Names and defaults are Kafka's, unless they begin with `odradek.`.

`Config` is an immutable value with one typed attribute per row: `log_segment_bytes` for `log.segment.bytes`.
`odradek.broker.config.sources` reads files, `--set` and the environment. `odradek.broker.config.topics` derives the
configurations of topics. A property has a row only if code of this repository uses it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from odradek.broker.config.property import DOUBLE_MAX, INT_MAX, Kind, Password, Property, Scope, properties_of, row
from odradek.protocol.primitives import INT64_MAX
from odradek.protocol.sasl.mechanism import OAUTHBEARER, PLAIN
from odradek.protocol.sasl.scram import SCRAM_MECHANISMS
from odradek.protocol.security_protocol import SecurityProtocol
from odradek.storage.compaction.offset_map import ENTRY_BYTES

BOOL, STR, INT, SHORT, LONG, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.SHORT, Kind.LONG, Kind.LIST
DOUBLE: Final = Kind.DOUBLE
PASSWORD: Final = Kind.PASSWORD
CLUSTER: Final = Scope.CLUSTER
PER_BROKER: Final = Scope.PER_BROKER

DEFAULT_BYTE_BUDGET: Final = 512 * 1024 * 1024
"""Maximum bytes of requests and responses in memory per node, if queued.max.request.bytes is -1."""

MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
"""The SASL mechanisms by which clients can authenticate."""
NO_TIERED_STORAGE: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
SEGMENT_BYTES_SET_MIN: Final = 1024 * 1024
"""Minimum of segment.bytes for topics and in dynamic configurations, as in Kafka. A node's file can set less."""
REPLICAS: Final = (
    "([0-9]+:[0-9]+)?",
    "must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
)
NO_SHARE_GROUPS: Final = "Share groups are not supported. No group can use the topic as a dead-letter queue."
NO_RECORD_LIMIT: Final = "A limit on the size of decompressed records is not supported."
RECORD_BYTES_MAX: Final = 2_147_483_639
"""Default of max.decompressed.message.bytes in Kafka: no limit except the largest array of Java."""
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
NO_PREALLOCATION: Final = "Preallocation of segments is not supported: the size of a file is the end of its log."


@dataclass(frozen=True, kw_only=True)
class Config:
    """The values of all properties of a node."""

    # fmt: off
    # Node, listeners and connections
    node_id: int = row("node.id", INT, 1, "Id of the node in its cluster. Each node needs a different id.", low=0)
    process_roles: tuple[str, ...] = row("process.roles", LIST, ("broker", "controller"), "Roles of the node: broker, controller, or both. A controller votes in the metadata log, and serves no clients. A broker alone is no voter. If unset, the node is a broker, and also a controller if it is a voter.", choices=("broker", "controller"))
    log_dirs: str = row("log.dirs", STR, "", "The data directory. Exactly one directory is supported.")
    listeners: tuple[str, ...] = row("listeners", LIST, ("PLAINTEXT://:9092",), "Addresses on which the node listens: NAME://host:port, comma-separated. An empty host means all interfaces, port 0 any free port.", scope=PER_BROKER, stored_because="a node opens its ports once, at its start. Change the file, and restart it.")
    advertised_listeners: tuple[str, ...] = row("advertised.listeners", LIST, (), "Addresses that the node publishes to clients and other nodes: NAME://host:port, for names in listeners. Set it if clients reach the node under another address, for example behind NAT or in containers. If unset, the address in listeners.")
    listener_security_protocol_map: tuple[str, ...] = row("listener.security.protocol.map", LIST, ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"), "The security protocol of each listener: NAME:PROTOCOL, comma-separated. Without this property, a listener whose name is no protocol has PLAINTEXT. With it, each listener needs an entry.", scope=PER_BROKER, stored_because="a node opens its ports once, at its start. Change the file, and restart it.")
    inter_broker_listener_name: str | None = row("inter.broker.listener.name", STR, None, "The listener for requests of other brokers. Only this listener serves them. `odradek broker` needs it, or security.inter.broker.protocol. The name of the only listener is allowed: it then serves clients and brokers, and a warning is logged.")
    controller_listener_names: tuple[str, ...] = row("controller.listener.names", LIST, (), "Listeners for controllers only, comma-separated. Clients do not see them. If unset, the listeners for brokers also serve controllers.")
    controller_quorum_voters: tuple[str, ...] = row("controller.quorum.voters", LIST, (), "The voters of the metadata log: id@host:port, comma-separated, the same on every node. If unset, this node is the only voter. A node that is not in the list is an observer.", may_be_empty=True)
    controller_quorum_bootstrap_servers: tuple[str, ...] = row("controller.quorum.bootstrap.servers", LIST, (), "Addresses host:port of controllers, comma-separated, instead of controller.quorum.voters. A broker requests the voters and the cluster id from one of them when it starts. A node with the role controller is then the only voter.", may_be_empty=True)
    broker_rack: str | None = row("broker.rack", STR, None, "The rack of the node. Replicas of a partition are placed in different racks, and consumers can fetch from a replica in their rack (replica.selector.class).")
    cluster_secret_file: str | None = row("cluster.secret.file", STR, None, "A file with the secret of the cluster, at least 32 bytes, the same on every node. The nodes authenticate to each other by SCRAM-SHA-256 with a credential derived from it. If unset, they do not authenticate.")
    odradek_bootstrap_scram_file: str | None = row("odradek.bootstrap.scram.file", STR, None, "A file with the first SCRAM credentials of a new cluster, for example of its administrator. Each line has the syntax of kafka-storage format --add-scram: SCRAM-SHA-256=[name=alice,password=secret]. The first active controller writes them to the empty metadata log. Later starts do not need the file.")
    odradek_inter_broker_authentication: str = row("odradek.inter.broker.authentication", STR, "required", "Authentication between nodes. With required, a node logs in to other nodes with the cluster secret, and serves only nodes that have logged in. With principal, it uses its own SASL credential or certificate instead, and serves nodes by their principals. With move or principal-move, it does the same on each listener, during a rolling change of the listener for brokers or to principals. With login, it logs in, and serves all nodes on each listener. With accept, it does not log in, and serves all nodes on each listener. The values login and accept are phases of a rolling change. With none, nodes do not authenticate. If unset, principal where sasl.mechanism.inter.broker.protocol or sasl.mechanism.controller.protocol is set for a listener with SASL. All values except none need cluster.secret.file if there are other voters: it is also the key of the failure detector.", choices=("required", "move", "login", "accept", "none", "principal", "principal-move"))
    odradek_node_principals: str = row("odradek.node.principals", STR, "", "The node that each principal may act as: id=User:name, separated by semicolons, for example 1=User:kafka-1;2=User:kafka-2. All other principals are clients. If unset, each principal with CLUSTER_ACTION may act as each node. Used if nodes are served by their principals.")
    authorizer_class_name: str = row("authorizer.class.name", STR, "", "The authorizer. If empty, each client may do each operation. With StandardAuthorizer, the ACLs of the cluster decide (`odradek acls`). All nodes need the same authorizer.", choices=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"))
    super_users: str = row("super.users", STR, "", "Principals that may do each operation, without ACLs: Type:name, separated by semicolons, for example User:admin;User:ops. Nodes that have authenticated with the cluster secret need no entry. Nodes without authentication need User:ANONYMOUS.")
    allow_everyone_if_no_acl_found: bool = row("allow.everyone.if.no.acl.found", BOOL, False, "Allow each operation on a resource that no ACL matches. If false, such operations are denied, except for super users.")
    odradek_cluster_id: str | None = row("odradek.cluster.id", STR, None, "The cluster id, 22 characters of base64url, the same on every node. If unset, the id in the data directory, or a new id for a cluster with one voter.")
    socket_listen_backlog_size: int = row("socket.listen.backlog.size", INT, 50, "Maximum connections per listener that wait to be accepted. The kernel's net.core.somaxconn limits it, too.", low=1)
    socket_request_max_bytes: int = row("socket.request.max.bytes", INT, 104857600, "Maximum size of a request in bytes. A larger request closes its connection.", low=1)
    odradek_request_max_bytes: int = row("odradek.request.max.bytes", INT, 8388608, "Maximum size in bytes of a request that contains no records and is not for other brokers. A larger request closes its connection. The limit of Produce and of requests between brokers is socket.request.max.bytes.", low=1)
    sasl_server_max_receive_size: int = row("sasl.server.max.receive.size", INT, 524288, "Maximum size in bytes of a request for authentication, and of each request that its listener does not serve. A listener with SASL serves no other request before authentication, nor does a listener for brokers or controllers with a cluster secret. A larger request closes its connection.", low=1, per_listener=True)
    security_inter_broker_protocol: str = row("security.inter.broker.protocol", STR, "PLAINTEXT", "The listener for requests of other brokers, by its security protocol, which is also its name. An alternative to inter.broker.listener.name. The default has no effect.", choices=tuple(SecurityProtocol.__members__))
    sasl_mechanism_inter_broker_protocol: str = row("sasl.mechanism.inter.broker.protocol", STR, "GSSAPI", "SASL mechanism by which this node logs in to other brokers, if their listener has SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. The options username and password of listener.name.NAME.MECHANISM.sasl.jaas.config are its credential. The default, which is not supported, has no effect: nodes then log in with the cluster secret.", choices=("GSSAPI", *MECHANISMS), scope=PER_BROKER, stored_because="a node logs in to other nodes before it has the metadata with dynamic values.")
    sasl_mechanism_controller_protocol: str = row("sasl.mechanism.controller.protocol", STR, "GSSAPI", "Like sasl.mechanism.inter.broker.protocol, for the listeners in controller.listener.names. SCRAM is refused there, because its credentials are in the metadata.", choices=("GSSAPI", *MECHANISMS))
    ssl_keystore_type: str = row("ssl.keystore.type", STR, "JKS", "Format of the file with the certificate and its private key: PEM or PKCS12. JKS, the default of Kafka, means PKCS12 here. A file in the format JKS is refused.", choices=STORE_TYPES, scope=Scope.LISTENER, per_listener=True)
    ssl_keystore_location: str | None = row("ssl.keystore.location", STR, None, "File with the certificate, its chain and its private key, for listeners with TLS and for connections to other nodes.", scope=Scope.LISTENER, per_listener=True)
    ssl_keystore_password: Password | None = row("ssl.keystore.password", PASSWORD, None, "Password of the file in ssl.keystore.location, if it is PKCS12.", scope=Scope.LISTENER, per_listener=True)
    ssl_keystore_key: Password | None = row("ssl.keystore.key", PASSWORD, None, "The private key in PEM (PKCS#8), instead of a file.", scope=Scope.LISTENER, per_listener=True)
    ssl_keystore_certificate_chain: Password | None = row("ssl.keystore.certificate.chain", PASSWORD, None, "The certificate and its chain in PEM, instead of a file. The certificate of the node comes first.", scope=Scope.LISTENER, per_listener=True)
    ssl_key_password: Password | None = row("ssl.key.password", PASSWORD, None, "Password of the private key, if it is encrypted.", scope=Scope.LISTENER, per_listener=True)
    ssl_truststore_type: str = row("ssl.truststore.type", STR, "JKS", "Format of the file with the trusted certificates: PEM or PKCS12. JKS, the default of Kafka, means PKCS12 here. A file in the format JKS is refused.", choices=STORE_TYPES, scope=Scope.LISTENER, per_listener=True)
    ssl_truststore_location: str | None = row("ssl.truststore.location", STR, None, "File with the trusted certificates. The certificates of clients and of other nodes are verified with them.", scope=Scope.LISTENER, per_listener=True)
    ssl_truststore_password: Password | None = row("ssl.truststore.password", PASSWORD, None, "Password of the file in ssl.truststore.location, if it is PKCS12.", scope=Scope.LISTENER, per_listener=True)
    ssl_truststore_certificates: Password | None = row("ssl.truststore.certificates", PASSWORD, None, "The trusted certificates in PEM, instead of a file.", scope=Scope.LISTENER, per_listener=True)
    ssl_client_auth: str = row("ssl.client.auth", STR, "none", "Whether clients of a listener with TLS present a certificate: required, requested (a client may have none) or none. For a listener with SASL_SSL, only a value for that listener applies.", choices=("required", "requested", "none"), scope=Scope.LISTENER, per_listener=True)
    ssl_protocol: str = row("ssl.protocol", STR, "TLSv1.3", "Highest version of TLS. With TLSv1.2, the node does not use TLS 1.3 even if ssl.enabled.protocols has it.", choices=("TLSv1.3", "TLSv1.2"), scope=Scope.LISTENER, per_listener=True)
    ssl_enabled_protocols: tuple[str, ...] = row("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), "Versions of TLS that the node accepts.", choices=("TLSv1.2", "TLSv1.3"), scope=Scope.LISTENER, per_listener=True)
    ssl_cipher_suites: tuple[str, ...] = row("ssl.cipher.suites", LIST, (), "Cipher suites by their IANA names, such as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384. If empty, the secure ones of the TLS library. TLS 1.3 has three suites: name all of them, or none to use TLS 1.2 alone.", may_be_empty=True, scope=Scope.LISTENER, per_listener=True)
    ssl_endpoint_identification_algorithm: str = row("ssl.endpoint.identification.algorithm", STR, "https", "With https, a node verifies that the certificate of another node has the host name that it connects to. If empty, it does not.", choices=("https", ""), scope=Scope.LISTENER, per_listener=True)
    ssl_allow_dn_changes: bool = row("ssl.allow.dn.changes", BOOL, False, "Whether a certificate that replaces one while the node runs may have another subject.")
    ssl_allow_san_changes: bool = row("ssl.allow.san.changes", BOOL, False, "Whether a certificate that replaces one while the node runs may lack some of its host names and addresses.")
    ssl_principal_mapping_rules: str = row("ssl.principal.mapping.rules", STR, "DEFAULT", "Rules that make the name of the principal from the subject of a client certificate: DEFAULT, or RULE:pattern/replacement/ with an optional L or U, comma-separated. The first rule that matches applies.", per_listener=True)
    sasl_enabled_mechanisms: tuple[str, ...] = row("sasl.enabled.mechanisms", LIST, (), "SASL mechanisms by which clients can authenticate, comma-separated. A listener with SASL_PLAINTEXT or SASL_SSL needs one.", choices=MECHANISMS, may_be_empty=True, per_listener=True, scope=PER_BROKER, stored_because="a listener reads its mechanisms once, at the start of the node. Change the file, and restart it.")
    sasl_jaas_config: Password | None = row("sasl.jaas.config", PASSWORD, None, "The login module of one SASL mechanism on one listener, as in Kafka. It must be set as listener.name.NAME.MECHANISM.sasl.jaas.config. The options user_NAME of PlainLoginModule are the users of PLAIN and their passwords. The options username and password are the credential of this node for other nodes. Nothing is loaded: a login module is a name.", per_mechanism=True, scope=PER_BROKER, stored_because="a node reads its credentials and the users of PLAIN once, at its start. Change the file, and restart it.")
    delegation_token_secret_key: Password | None = row("delegation.token.secret.key", PASSWORD, None, "Key from which the secrets of delegation tokens (KIP-48) are derived. All nodes need the same key. If unset or empty, the cluster has no delegation tokens. With another key, existing tokens are invalid.")
    delegation_token_max_lifetime_ms: int = row("delegation.token.max.lifetime.ms", LONG, 604800000, "Milliseconds from the creation of a delegation token after which it cannot be renewed. A client can request less.", low=1)
    delegation_token_expiry_time_ms: int = row("delegation.token.expiry.time.ms", LONG, 86400000, "Milliseconds after which a delegation token expires, unless it is renewed.", low=1)
    delegation_token_expiry_check_interval_ms: int = row("delegation.token.expiry.check.interval.ms", LONG, 3600000, "Milliseconds between two removals of expired delegation tokens by the controller. Logins with them are refused before.", low=1)
    sasl_server_callback_handler_class: str | None = row("sasl.server.callback.handler.class", Kind.CLASS, None, "Accepted for compatibility. The only valid value names Kafka's validation of tokens, which OAUTHBEARER always has here. Nothing is loaded.", choices=("org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",), per_mechanism=True)
    connections_max_reauth_ms: int = row("connections.max.reauth.ms", LONG, 0, "Milliseconds after a SASL login after which the broker closes the connection, unless the client authenticates again. 0: no limit, except the expiry of a token.", low=0, per_listener=True, per_mechanism=True)
    connection_failed_authentication_delay_ms: int = row("connection.failed.authentication.delay.ms", INT, 100, "Milliseconds from a failed SASL login to its response and the end of the connection.", low=0)
    sasl_oauthbearer_jwks_endpoint_url: str | None = row("sasl.oauthbearer.jwks.endpoint.url", STR, None, "URL of the JWKS document with the keys of the OAuth provider: https, http or file. OAUTHBEARER needs it.", per_listener=True, per_mechanism=True)
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = row("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3600000, "Milliseconds between two reads of the JWKS document. The broker also reads it if a token has an unknown key.", low=1000, per_listener=True, per_mechanism=True)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = row("sasl.oauthbearer.expected.audience", LIST, (), "Audiences of accepted tokens, comma-separated. A token needs one of them. OAUTHBEARER needs it, or sasl.oauthbearer.allow.unverified.audience.", may_be_empty=True, per_listener=True, per_mechanism=True)
    sasl_oauthbearer_expected_issuer: str | None = row("sasl.oauthbearer.expected.issuer", STR, None, "Issuer of accepted tokens. OAUTHBEARER needs it, or sasl.oauthbearer.allow.unverified.issuer.", per_listener=True, per_mechanism=True)
    sasl_oauthbearer_allow_unverified_audience: bool = row("sasl.oauthbearer.allow.unverified.audience", BOOL, False, "True to accept tokens for any audience if sasl.oauthbearer.expected.audience is not set.", per_listener=True, per_mechanism=True)
    sasl_oauthbearer_allow_unverified_issuer: bool = row("sasl.oauthbearer.allow.unverified.issuer", BOOL, False, "True to accept tokens of any issuer if sasl.oauthbearer.expected.issuer is not set.", per_listener=True, per_mechanism=True)
    sasl_oauthbearer_scope_claim_name: str = row("sasl.oauthbearer.scope.claim.name", STR, "scope", "Name of the claim with the scope of a token.", per_listener=True, per_mechanism=True)
    sasl_oauthbearer_sub_claim_name: str = row("sasl.oauthbearer.sub.claim.name", STR, "sub", "Name of the claim with the principal of a token.", per_listener=True, per_mechanism=True)
    sasl_oauthbearer_clock_skew_seconds: int = row("sasl.oauthbearer.clock.skew.seconds", INT, 30, "Maximum difference in seconds between the clocks of the OAuth provider and of the broker.", low=0, high=86400, per_listener=True, per_mechanism=True)
    max_connections: int = row("max.connections", INT, INT_MAX, "Maximum open connections of the broker. Further ones are closed immediately. Connections to a listener for brokers or controllers count, but are accepted beyond the limit if clients have another listener.", low=0, scope=Scope.DYNAMIC)
    max_connections_per_ip: int = row("max.connections.per.ip", INT, INT_MAX, "Maximum open connections from one IP address, over all listeners. Further ones are closed immediately.", low=0, scope=Scope.DYNAMIC)
    max_connections_per_ip_overrides: str = row("max.connections.per.ip.overrides", STR, "", "Maximum open connections of single IP addresses, instead of max.connections.per.ip: address:number, comma-separated, for example 10.0.0.1:100. Kafka also accepts host names.", scope=Scope.DYNAMIC)
    max_connection_creation_rate: int = row("max.connection.creation.rate", INT, INT_MAX, "Maximum new connections per second. The broker reads further ones only in the next second. Connections to a listener for brokers or controllers are exempt if clients have another listener.", low=1, scope=Scope.DYNAMIC)
    connections_max_idle_ms: int = row("connections.max.idle.ms", LONG, 600000, "Milliseconds without a request after which the broker closes a client's connection. -1: never.", low=-1)
    queued_max_request_bytes: int = row("queued.max.request.bytes", LONG, -1, f"Maximum bytes of requests and responses in memory. The broker stops reading from connections while less than twice socket.request.max.bytes is free, and never before half is used. -1: {DEFAULT_BYTE_BUDGET}. Increase it if many clients send large batches and the machine has the memory.", low=-1)
    odradek_max_in_flight_requests: int = row("odradek.max.in.flight.requests", INT, 64, "Maximum requests of one connection that the broker processes at the same time. At the limit, it stops reading from the connection.", low=1)
    odradek_frame_deadline_ms: int = row("odradek.frame.deadline.ms", LONG, 30000, "Maximum milliseconds from the first to the last byte of a request. A slower one closes its connection.", low=1)
    request_timeout_ms: int = row("request.timeout.ms", INT, 30000, "Maximum milliseconds for which a broker waits for a response of the controller or another broker, on behalf of a client's request.", low=1)

    # Topics
    num_partitions: int = row("num.partitions", INT, 1, "Number of partitions of a topic that is created without a number of partitions.", low=1)
    default_replication_factor: int = row("default.replication.factor", INT, 1, "Replication factor of a topic that is created without one.", low=1)
    auto_create_topics_enable: bool = row("auto.create.topics.enable", BOOL, True, "Create a topic when a client requests the metadata of a topic that does not exist.")
    delete_topic_enable: bool = row("delete.topic.enable", BOOL, True, "Allow the deletion of topics. If false, DeleteTopics fails with TOPIC_DELETION_DISABLED.")
    max_request_partition_size_limit: int = row("max.request.partition.size.limit", INT, 2000, "Maximum partitions in one response to DescribeTopicPartitions.", low=1)

    # Logs: the defaults of topics
    log_cleanup_policy: tuple[str, ...] = row("log.cleanup.policy", LIST, ("delete",), "Removal of old records. delete: retention deletes old segments. compact: compaction keeps the last record of each key. Both can be set. If empty, no records are removed.", choices=("compact", "delete"), may_be_empty=True, topic="cleanup.policy")
    compression_type: str = row("compression.type", STR, "producer", "Compression of stored batches. producer: as the producer has compressed them. Otherwise the broker recompresses batches with another codec.", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), topic="compression.type")
    compression_gzip_level: int = row("compression.gzip.level", INT, -1, "Compression level of batches that the broker compresses with gzip. -1: 6.", low=1, high=9, or_equal=-1, topic="compression.gzip.level")
    compression_lz4_level: int = row("compression.lz4.level", INT, 9, "Compression level of batches that the broker compresses with lz4. 9 is lz4's fast mode, all other values are levels of its high-compression mode.", low=1, high=17, topic="compression.lz4.level")
    compression_zstd_level: int = row("compression.zstd.level", INT, 3, "Compression level of batches that the broker compresses with zstd.", low=-131072, high=22, topic="compression.zstd.level")
    message_max_bytes: int = row("message.max.bytes", INT, 1048588, "Maximum size of a record batch in bytes, after compression.", low=0, topic="max.message.bytes")
    max_decompressed_message_bytes: int = row("max.decompressed.message.bytes", INT, RECORD_BYTES_MAX, "Maximum size of a decompressed record in bytes. Only the default is supported, which is no limit.", low=1, high=RECORD_BYTES_MAX, fixed=NO_RECORD_LIMIT, topic="max.decompressed.message.bytes")
    min_insync_replicas: int = row("min.insync.replicas", INT, 1, "Minimum size of the ISR for writes with acks=all. With fewer in-sync replicas, producers receive NOT_ENOUGH_REPLICAS. A typical setting is replication factor 3, min.insync.replicas 2.", low=1, topic="min.insync.replicas")
    log_message_timestamp_type: str = row("log.message.timestamp.type", STR, "CreateTime", "Timestamp of stored records. CreateTime: set by the producer. LogAppendTime: set by the broker.", choices=("CreateTime", "LogAppendTime"), topic="message.timestamp.type")
    log_message_timestamp_before_max_ms: int = row("log.message.timestamp.before.max.ms", LONG, INT64_MAX, "Maximum milliseconds by which a record's CreateTime may be older than the broker's clock. Older records are refused with INVALID_TIMESTAMP.", low=0, topic="message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = row("log.message.timestamp.after.max.ms", LONG, 3600000, "Maximum milliseconds by which a record's CreateTime may be ahead of the broker's clock. Later records are refused with INVALID_TIMESTAMP.", low=0, topic="message.timestamp.after.max.ms")
    log_segment_bytes: int = row("log.segment.bytes", INT, 1073741824, "Maximum size of a segment in bytes. Retention and compaction work on complete segments; smaller segments make them more precise, but increase the number of files.", low=14, set_low=SEGMENT_BYTES_SET_MIN, topic="segment.bytes")
    log_preallocate: bool = row("log.preallocate", BOOL, False, "Preallocation of segment files. It is not supported: the size of a file is the end of its log.", fixed=NO_PREALLOCATION, topic="preallocate")
    log_roll_ms: int | None = row("log.roll.ms", LONG, None, "Maximum age of the active segment in milliseconds, before a new one is rolled. If unset, log.roll.hours.", low=1, topic="segment.ms")
    log_roll_hours: int = row("log.roll.hours", INT, 168, "Maximum age of the active segment in hours, before a new one is rolled.", low=1)
    log_roll_jitter_ms: int | None = row("log.roll.jitter.ms", LONG, None, "Maximum random reduction of log.roll.ms, in milliseconds, so that not all partitions roll at the same time. If unset, log.roll.jitter.hours.", low=0, topic="segment.jitter.ms")
    log_roll_jitter_hours: int = row("log.roll.jitter.hours", INT, 0, "Maximum random reduction of log.roll.hours, in hours.", low=0)
    log_retention_ms: int | None = row("log.retention.ms", LONG, None, "Milliseconds for which records are kept before their segment is deleted. -1: no limit. If unset, log.retention.minutes.", low=-1, topic="retention.ms")
    log_retention_minutes: int | None = row("log.retention.minutes", INT, None, "Minutes for which records are kept before their segment is deleted. If unset, log.retention.hours.")
    log_retention_hours: int = row("log.retention.hours", INT, 168, "Hours for which records are kept before their segment is deleted.")
    log_retention_bytes: int = row("log.retention.bytes", LONG, -1, "Maximum size of a partition in bytes, before old segments are deleted. -1: no limit. The limit of a topic is this value times its number of partitions.", topic="retention.bytes")
    log_local_retention_ms: int = row("log.local.retention.ms", LONG, -2, "Local retention time of tiered storage. Tiered storage is not supported, so log.retention.ms holds.", low=-2, fixed=NO_TIERED_STORAGE, topic="local.retention.ms")
    log_local_retention_bytes: int = row("log.local.retention.bytes", LONG, -2, "Local retention size of tiered storage. Tiered storage is not supported, so log.retention.bytes holds.", low=-2, fixed=NO_TIERED_STORAGE, topic="local.retention.bytes")
    log_remote_copy_lag_ms: int = row("log.remote.copy.lag.ms", LONG, 0, "Minimum age of records that tiered storage copies. Tiered storage is not supported.", low=-1, fixed=NO_TIERED_STORAGE, topic="remote.copy.lag.ms")
    log_remote_copy_lag_bytes: int = row("log.remote.copy.lag.bytes", LONG, -1, "Minimum bytes of newer records before tiered storage copies a segment. Tiered storage is not supported.", low=-1, fixed=NO_TIERED_STORAGE, topic="remote.copy.lag.bytes")
    remote_storage_enable: bool = row("remote.storage.enable", BOOL, False, "Tiered storage. It is not supported.", fixed=NO_TIERED_STORAGE, topic="remote.storage.enable", scope=Scope.TOPIC_ALONE)
    remote_log_copy_disable: bool = row("remote.log.copy.disable", BOOL, False, "Read-only mode of tiered storage. Tiered storage is not supported.", fixed=NO_TIERED_STORAGE, topic="remote.log.copy.disable", scope=Scope.TOPIC_ALONE)
    remote_log_delete_on_disable: bool = row("remote.log.delete.on.disable", BOOL, False, "Deletion of remote data when tiered storage is disabled. Tiered storage is not supported.", fixed=NO_TIERED_STORAGE, topic="remote.log.delete.on.disable", scope=Scope.TOPIC_ALONE)
    errors_deadletterqueue_group_enable: bool = row("errors.deadletterqueue.group.enable", BOOL, False, "Use of a topic as the dead-letter queue of share groups. Share groups are not supported.", fixed=NO_SHARE_GROUPS, topic="errors.deadletterqueue.group.enable", scope=Scope.TOPIC_ALONE)
    log_index_size_max_bytes: int = row("log.index.size.max.bytes", INT, 10485760, "Maximum size of an offset index or a time index in bytes. A full index rolls its segment.", low=4, topic="segment.index.bytes")
    log_index_interval_bytes: int = row("log.index.interval.bytes", INT, 4096, "Bytes of records between two entries of an index. Fewer bytes make look-ups faster, and indexes larger. A value above 65536 has the effect of 65536.", low=0, topic="index.interval.bytes")
    log_flush_interval_messages: int = row("log.flush.interval.messages", LONG, INT64_MAX, "Number of records after which a partition is flushed. 1: every append is flushed before its acknowledgment. Replication protects acknowledged records by default; reduce the value if all replicas may lose power at the same time.", low=1, topic="flush.messages")
    log_flush_interval_ms: int | None = row("log.flush.interval.ms", LONG, None, "Maximum milliseconds for which records stay unflushed. If unset, log.flush.scheduler.interval.ms, which leaves flushing to the operating system by default.", low=0, topic="flush.ms")
    log_segment_delete_delay_ms: int = row("log.segment.delete.delay.ms", LONG, 60000, "Milliseconds between the deletion of a segment from the log and the deletion of its files. Fetches that read the segment can finish in this time.", low=0, topic="file.delete.delay.ms")
    unclean_leader_election_enable: bool = row("unclean.leader.election.enable", BOOL, False, "Allow a replica outside the ISR to become leader if no other replica can. The partition becomes available, but loses the records that this replica lacks.", topic="unclean.leader.election.enable")
    odradek_validate_records: str = row("odradek.validate.records", STR, "headers", "Validation of produced batches. headers: checksum, counts and sequence numbers of each batch. all: each record, too, which costs processor time per record.", choices=("headers", "all"), scope=CLUSTER)

    # Logs: compaction
    log_cleaner_enable: bool = row("log.cleaner.enable", BOOL, True, "Compact the topics whose cleanup.policy contains compact. If false, their logs, including __consumer_offsets, grow without limit.")
    log_cleaner_min_cleanable_ratio: float = row("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, "Minimum ratio of the dirty part of a log to the whole log, before it is compacted. A lower ratio keeps fewer obsolete records and costs more disk I/O.", low=0, high=1, topic="min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = row("log.cleaner.min.compaction.lag.ms", LONG, 0, "Minimum milliseconds for which a record stays uncompacted. Consumers that lag less see each record.", low=0, topic="min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = row("log.cleaner.max.compaction.lag.ms", LONG, INT64_MAX, "Maximum milliseconds for which a record can stay uncompacted, even if the log is below log.cleaner.min.cleanable.ratio. Segments are rolled early enough.", low=1, topic="max.compaction.lag.ms")
    log_cleaner_delete_retention_ms: int = row("log.cleaner.delete.retention.ms", LONG, 86400000, "Milliseconds for which compaction keeps tombstones, and markers of transactions without remaining records. A consumer that reads from offset 0 has this time to see them.", low=0, topic="delete.retention.ms")
    log_cleaner_dedupe_buffer_size: int = row("log.cleaner.dedupe.buffer.size", LONG, 134217728, f"Bytes of memory for the keys of the log that is being compacted, about {ENTRY_BYTES} bytes per key. Keys that do not fit are compacted in the next run.", low=1048576, scope=Scope.DYNAMIC)
    log_cleaner_io_buffer_load_factor: float = row("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "Maximum load factor of log.cleaner.dedupe.buffer.size.", low=0.01, high=1, scope=Scope.DYNAMIC, may_be_nan=False)
    log_cleaner_io_buffer_size: int = row("log.cleaner.io.buffer.size", INT, 524288, "Bytes of memory for reading and writing during compaction. A larger batch is read alone.", low=0, scope=Scope.DYNAMIC)
    log_cleaner_io_max_bytes_per_second: float = row("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, "Maximum bytes per second that compaction reads and writes, in total. Reduce it if compaction slows down clients.", low=1, scope=Scope.DYNAMIC)
    log_cleaner_backoff_ms: int = row("log.cleaner.backoff.ms", LONG, 15000, "Milliseconds to wait if no log needs compaction.", low=0, scope=Scope.DYNAMIC)

    # Logs: background tasks
    log_flush_scheduler_interval_ms: int = row("log.flush.scheduler.interval.ms", LONG, INT64_MAX, "Milliseconds between two checks for logs whose log.flush.interval.ms is over.", low=1)
    log_initial_task_delay_ms: int = row("log.initial.task.delay.ms", LONG, 30000, "Milliseconds from the start of the broker to the first run of retention, flush and checkpoint tasks.", low=0)
    log_retention_check_interval_ms: int = row("log.retention.check.interval.ms", LONG, 300000, "Milliseconds between two runs of retention.", low=1)
    log_flush_offset_checkpoint_interval_ms: int = row("log.flush.offset.checkpoint.interval.ms", INT, 60000, "Milliseconds between two checkpoints of recovery points. Fewer milliseconds make recovery after an unclean shutdown shorter.", low=0)
    log_flush_start_offset_checkpoint_interval_ms: int = row("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, "Milliseconds between two checkpoints of log start offsets.", low=0)
    replica_high_watermark_checkpoint_interval_ms: int = row("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, "Milliseconds between two checkpoints of high watermarks.", low=1)

    # Fetch
    fetch_max_bytes: int = row("fetch.max.bytes", INT, 57671680, "Maximum bytes of a Fetch response. If the first batch is larger, it is returned nevertheless, so that consumers make progress.", low=1024)
    max_incremental_fetch_session_cache_slots: int = row("max.incremental.fetch.session.cache.slots", INT, 1000, "Maximum incremental fetch sessions of clients (KIP-227). Beyond it, idle sessions are evicted, or clients receive no session and send full fetches.", low=0)

    # Replication
    replica_lag_time_max_ms: int = row("replica.lag.time.max.ms", LONG, 30000, "Milliseconds after which a follower leaves the ISR if it has not caught up with the leader's log end.", low=1)
    replica_fetch_max_bytes: int = row("replica.fetch.max.bytes", INT, 1048576, "Maximum bytes per partition in a response to a follower. A larger batch is returned alone.", low=0)
    replica_fetch_response_max_bytes: int = row("replica.fetch.response.max.bytes", INT, 10485760, "Maximum bytes of a response to a follower.", low=0)
    replica_fetch_wait_max_ms: int = row("replica.fetch.wait.max.ms", INT, 500, "Maximum milliseconds for which a leader parks the fetch of a follower that has caught up. It should be less than replica.lag.time.max.ms; otherwise followers of idle partitions leave the ISR.", low=1)
    replica_fetch_min_bytes: int = row("replica.fetch.min.bytes", INT, 1, "Minimum bytes for a response to a follower. The leader waits for them at most replica.fetch.wait.max.ms.", low=0)
    replica_fetch_backoff_ms: int = row("replica.fetch.backoff.ms", INT, 1000, "Maximum milliseconds between two fetches of a follower after an error. The wait begins at 20 ms and doubles.", low=0)
    leader_replication_throttled_rate: int = row("leader.replication.throttled.rate", LONG, INT64_MAX, "Maximum bytes per second that this broker sends to followers of throttled replicas outside the ISR. Limits the traffic of a reassignment.", low=0, scope=Scope.DYNAMIC_ALONE)
    follower_replication_throttled_rate: int = row("follower.replication.throttled.rate", LONG, INT64_MAX, "Maximum bytes per second that this broker fetches for its throttled replicas outside the ISR. Limits the traffic of a reassignment.", low=0, scope=Scope.DYNAMIC_ALONE)
    leader_replication_throttled_replicas: tuple[str, ...] = row("leader.replication.throttled.replicas", LIST, (), "Replicas to which leader.replication.throttled.rate applies: partition:broker, comma-separated, or * for all of the topic.", items=REPLICAS, may_be_empty=True, topic="leader.replication.throttled.replicas", scope=Scope.TOPIC_ALONE)
    follower_replication_throttled_replicas: tuple[str, ...] = row("follower.replication.throttled.replicas", LIST, (), "Replicas to which follower.replication.throttled.rate applies: partition:broker, comma-separated, or * for all of the topic.", items=REPLICAS, may_be_empty=True, topic="follower.replication.throttled.replicas", scope=Scope.TOPIC_ALONE)
    replica_selector_class: str | None = row("replica.selector.class", STR, None, "Selection of the replica from which consumers fetch. If unset, the leader. RackAwareReplicaSelector: a replica in the consumer's rack (client.rack).", choices=("org.apache.kafka.common.replica.RackAwareReplicaSelector", "org.apache.kafka.common.replica.LeaderSelector"))

    # Transactions and producers
    transaction_state_log_num_partitions: int = row("transaction.state.log.num.partitions", INT, 50, "Number of partitions of __transaction_state. Do not change it after the first transaction: it determines the coordinator of each transactional id.", low=1)
    transaction_state_log_replication_factor: int | None = row("transaction.state.log.replication.factor", SHORT, None, "Replication factor of __transaction_state. If unset, 3, or the number of brokers if that is less.", low=1)
    transaction_state_log_min_isr: int | None = row("transaction.state.log.min.isr", INT, None, "min.insync.replicas of __transaction_state. If unset, 2, or the number of brokers if that is less.", low=1)
    transaction_state_log_segment_bytes: int = row("transaction.state.log.segment.bytes", INT, 104857600, "segment.bytes of __transaction_state. Smaller segments are compacted sooner, and load faster on a new coordinator.", low=1)
    transaction_state_log_load_buffer_size: int = row("transaction.state.log.load.buffer.size", INT, 5242880, "Bytes per read while a new transaction coordinator loads a partition of __transaction_state.", low=1)
    transaction_max_timeout_ms: int = row("transaction.max.timeout.ms", INT, 900000, "Maximum transaction.timeout.ms of a producer. InitProducerId with a longer one fails with INVALID_TRANSACTION_TIMEOUT.", low=1)
    transaction_two_phase_commit_enable: bool = row("transaction.two.phase.commit.enable", BOOL, False, "Let producers take part in a two-phase commit (KIP-939). Their transactions never time out: one whose owner does not come back holds back readers until it is aborted. The broker then announces InitProducerId version 6. All brokers need the same value. It needs transaction.version 2.")
    transactional_id_expiration_ms: int = row("transactional.id.expiration.ms", INT, 604800000, "Milliseconds after which the coordinator removes a transactional id without activity.", low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = row("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, "Milliseconds between two checks for transactions whose time-out is over. The coordinator aborts them.", low=1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = row("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3600000, "Milliseconds between two checks for expired transactional ids.", low=1)
    transaction_partition_verification_enable: bool = row("transaction.partition.verification.enable", BOOL, True, "Verify with the transaction coordinator that a partition is part of the transaction, before its first batch is appended (KIP-890). Without it, batches that arrive after the end of their transaction can cause hanging transactions.", scope=Scope.DYNAMIC)
    producer_id_expiration_ms: int = row("producer.id.expiration.ms", INT, 86400000, "Milliseconds after which a partition removes the state of a producer without activity. It should be longer than the delivery.timeout.ms of producers, or the broker cannot detect duplicates in their last retries.", low=1, scope=Scope.DYNAMIC)
    producer_id_expiration_check_interval_ms: int = row("producer.id.expiration.check.interval.ms", INT, 600000, "Milliseconds between two checks for expired producers.", low=1)
    add_partitions_to_txn_retry_backoff_ms: int = row("add.partitions.to.txn.retry.backoff.ms", INT, 20, "Milliseconds before the broker repeats a verification request that failed with CONCURRENT_TRANSACTIONS.", low=1)
    add_partitions_to_txn_retry_backoff_max_ms: int = row("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, "Maximum milliseconds for which the broker repeats such a verification request before it returns the error to the producer.", low=0)
    odradek_initial_transaction_version: int = row("odradek.initial.transaction.version", SHORT, 2, "Feature level of transaction.version in a new cluster. Change it later with UpdateFeatures.", low=0, high=2, scope=CLUSTER)

    # Groups and offsets
    offsets_topic_num_partitions: int = row("offsets.topic.num.partitions", INT, 50, "Number of partitions of __consumer_offsets. Do not change it after the first commit: it determines the coordinator of each group.", low=1)
    offsets_topic_replication_factor: int | None = row("offsets.topic.replication.factor", SHORT, None, "Replication factor of __consumer_offsets. If unset, 3, or the number of brokers if that is less.", low=1)
    offsets_topic_segment_bytes: int = row("offsets.topic.segment.bytes", INT, 104857600, "segment.bytes of __consumer_offsets. Smaller segments are compacted sooner, and load faster on a new coordinator.", low=1)
    offsets_load_buffer_size: int = row("offsets.load.buffer.size", INT, 5242880, "Bytes per read while a new group coordinator loads a partition of __consumer_offsets.", low=1)
    offsets_commit_timeout_ms: int = row("offsets.commit.timeout.ms", INT, 5000, "Maximum milliseconds until an offset commit, or another change of a group, is replicated. Then the client receives a retriable error.", low=1)
    offsets_retention_minutes: int = row("offsets.retention.minutes", INT, 10080, "Minutes for which the offsets of an empty group, or of a topic that the group no longer subscribes to, are kept.", low=1)
    offsets_retention_check_interval_ms: int = row("offsets.retention.check.interval.ms", LONG, 600000, "Milliseconds between two checks for expired offsets.", low=1)
    offset_metadata_max_bytes: int = row("offset.metadata.max.bytes", INT, 4096, "Maximum bytes of the metadata text of a committed offset. A longer one fails with OFFSET_METADATA_TOO_LARGE.")
    group_min_session_timeout_ms: int = row("group.min.session.timeout.ms", INT, 6000, "Minimum session.timeout.ms of members of classic groups. Shorter time-outs detect failed members sooner, but cost more heartbeats.")
    group_max_session_timeout_ms: int = row("group.max.session.timeout.ms", INT, 1800000, "Maximum session.timeout.ms of members of classic groups. Longer time-outs give members more time between heartbeats, but delay the detection of failures.")
    group_initial_rebalance_delay_ms: int = row("group.initial.rebalance.delay.ms", INT, 3000, "Milliseconds for which a new classic group waits for further members before its first rebalance. A longer delay avoids rebalances while an application starts.")
    group_max_size: int = row("group.max.size", INT, INT_MAX, "Maximum members of a classic group.", low=1)
    group_consumer_session_timeout_ms: int = row("group.consumer.session.timeout.ms", INT, 45000, "Milliseconds without a heartbeat after which a member leaves a consumer group (KIP-848). Default for groups without their own value.", low=1)
    group_consumer_min_session_timeout_ms: int = row("group.consumer.min.session.timeout.ms", INT, 45000, "Minimum consumer.session.timeout.ms of a group.", low=1)
    group_consumer_max_session_timeout_ms: int = row("group.consumer.max.session.timeout.ms", INT, 60000, "Maximum consumer.session.timeout.ms of a group.", low=1)
    group_consumer_heartbeat_interval_ms: int = row("group.consumer.heartbeat.interval.ms", INT, 5000, "Milliseconds between two heartbeats of a member of a consumer group. Default for groups without their own value.", low=1)
    group_consumer_min_heartbeat_interval_ms: int = row("group.consumer.min.heartbeat.interval.ms", INT, 5000, "Minimum consumer.heartbeat.interval.ms of a group.", low=1)
    group_consumer_max_heartbeat_interval_ms: int = row("group.consumer.max.heartbeat.interval.ms", INT, 15000, "Maximum consumer.heartbeat.interval.ms of a group.", low=1)
    group_consumer_max_size: int = row("group.consumer.max.size", INT, INT_MAX, "Maximum members of a consumer group.", low=1)
    group_consumer_assignors: tuple[str, ...] = row("group.consumer.assignors", LIST, ("uniform", "range"), "Server-side assignors of consumer groups. The first one is the default for members that name none.", choices=("uniform", "range"))
    group_consumer_migration_policy: str = row("group.consumer.migration.policy", STR, "bidirectional", "Permitted conversions between the protocols of a group. upgrade: classic to consumer. downgrade: consumer to classic. bidirectional: both. disabled: neither.", choices=("bidirectional", "upgrade", "downgrade", "disabled"))
    group_consumer_regex_refresh_interval_ms: int = row("group.consumer.regex.refresh.interval.ms", INT, 600000, "Milliseconds after which the regular expressions of a group are evaluated again, even if no topic was created or deleted.", low=10000)
    group_consumer_assignment_interval_ms: int = row("group.consumer.assignment.interval.ms", INT, 1000, "Minimum milliseconds between two assignments of a consumer group. A longer interval combines more changes of members in one assignment. Default for groups without their own value.", low=0, scope=Scope.DYNAMIC)
    group_consumer_min_assignment_interval_ms: int = row("group.consumer.min.assignment.interval.ms", INT, 0, "Minimum consumer.assignment.interval.ms of a group.", low=0)
    group_consumer_max_assignment_interval_ms: int = row("group.consumer.max.assignment.interval.ms", INT, 15000, "Maximum consumer.assignment.interval.ms of a group.", low=0)

    # Quotas
    quota_window_num: int = row("quota.window.num", INT, 11, "Number of windows over which the broker measures the rates of client quotas.", low=1)
    quota_window_size_seconds: int = row("quota.window.size.seconds", INT, 1, "Length of one window of client quotas, in seconds.", low=1)
    controller_quota_window_num: int = row("controller.quota.window.num", INT, 11, "Number of windows over which the broker measures the rates of controller_mutation_rate quotas.", low=1)
    controller_quota_window_size_seconds: int = row("controller.quota.window.size.seconds", INT, 1, "Length of one window of controller_mutation_rate quotas, in seconds.", low=1)

    # Controller
    controller_quorum_election_timeout_ms: int = row("controller.quorum.election.timeout.ms", INT, 1000, "Milliseconds for which a voter without a leader waits before it starts an election.", low=1)
    controller_quorum_fetch_timeout_ms: int = row("controller.quorum.fetch.timeout.ms", INT, 2000, "Milliseconds without a successful fetch from the leader after which a voter starts an election. A leader resigns after one and a half times as long without fetches of a majority.", low=1)
    controller_quorum_election_backoff_max_ms: int = row("controller.quorum.election.backoff.max.ms", INT, 1000, "Maximum random wait in milliseconds after an election without a winner.", low=0)
    metadata_log_max_record_bytes_between_snapshots: int = row("metadata.log.max.record.bytes.between.snapshots", LONG, 20971520, "Bytes of new metadata records after which a node takes a metadata snapshot (KIP-630).", low=1)
    metadata_log_max_snapshot_interval_ms: int = row("metadata.log.max.snapshot.interval.ms", LONG, 3600000, "Maximum milliseconds between two metadata snapshots if there are new metadata records. 0: no limit.", low=0)
    metadata_log_segment_bytes: int = row("metadata.log.segment.bytes", INT, 1073741824, "Maximum size of a segment of the metadata log in bytes.", low=8388608)
    broker_heartbeat_interval_ms: int = row("broker.heartbeat.interval.ms", INT, 2000, "Milliseconds between two heartbeats of a broker to the controller.", low=1)
    auto_leader_rebalance_enable: bool = row("auto.leader.rebalance.enable", BOOL, True, "Move leaders back to the preferred replicas automatically, if a broker exceeds leader.imbalance.per.broker.percentage.")
    leader_imbalance_check_interval_seconds: int = row("leader.imbalance.check.interval.seconds", LONG, 300, "Seconds between two checks of the leader imbalance.", low=1)
    leader_imbalance_per_broker_percentage: int = row("leader.imbalance.per.broker.percentage", INT, 10, "Maximum percentage of the partitions that prefer a broker and have another leader. Above it, the controller moves the leaders back. Apache Kafka had this property before 4.0.", low=0)
    unclean_leader_election_interval_ms: int = row("unclean.leader.election.interval.ms", LONG, 300000, "Milliseconds between two checks for partitions without a leader whose topics allow unclean leader election.", low=1)
    broker_session_timeout_ms: int = row("broker.session.timeout.ms", INT, 9000, "Milliseconds without a heartbeat after which the controller fences a broker. The failure detector (odradek.membership.*) is faster in most cases.", low=1)

    # Failure detector
    odradek_membership_port: int = row("odradek.membership.port", INT, 0, "UDP port of the failure detector, the same on every node. 0: the number of the TCP port of the listener for brokers.", low=0, high=65535)
    odradek_membership_probe_interval_ms: int = row("odradek.membership.probe.interval.ms", INT, 100, "Milliseconds between two pings of the failure detector. Each one goes to another node.", low=1)
    odradek_membership_probe_timeout_ms: int = row("odradek.membership.probe.timeout.ms", INT, 150, "Milliseconds without an acknowledgment after which other nodes are requested to ping the node. After the same time again, the node is a suspect.", low=1)
    odradek_membership_suspicion_timeout_ms: int = row("odradek.membership.suspicion.timeout.ms", INT, 800, "Milliseconds after which the failure of a silent suspect is declared, so that the controller fences it. Increase it on machines whose processes stop for longer.", low=1)

    # Metrics
    odradek_metrics_listener: str | None = row("odradek.metrics.listener", STR, None, "Address host:port for GET /metrics (Prometheus). An empty host means 127.0.0.1, 0.0.0.0 all interfaces. Port 0 is any free port. If unset, the node serves no metrics.")

    # Log events
    odradek_log_format: str = row("odradek.log.format", STR, "console", "Format of the log events that the process writes: console for people, json for log collectors.", choices=("console", "json"))
    odradek_log_level: str = row("odradek.log.level", STR, "info", "Minimum level of the log events that the process writes.", choices=("debug", "info", "warning", "error"))
    # fmt: on

    given: frozenset[str] = frozenset()
    """Names of the properties that were set; all others have their defaults."""
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values of single listeners and mechanisms: `override_key` -> attribute -> value."""
    without_effect: Mapping[str, str] = field(default_factory=dict)
    """Texts of the given properties of Kafka that have no effect, by name."""
    unknown: tuple[str, ...] = ()
    """A message for each unknown name in the node's file."""

    @property
    def byte_budget(self) -> int:
        """Maximum bytes of requests and responses in memory (`odradek.broker.quota.byte_budget`)."""
        return self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else DEFAULT_BYTE_BUDGET

    def on_listener(self, name: str, mechanism: str | None = None) -> "Config":
        """Return the configuration with the values that `listener.name.<name>` properties give to one listener.

        With `mechanism`, it also has the values of that SASL mechanism on the listener.
        """
        own = dict(self.overrides.get(name, {}))
        if mechanism is not None:
            own |= self.overrides.get(override_key(name, mechanism), {})
        return replace(self, **own) if own else self


def override_key(listener: str, mechanism: str) -> str:
    """Return the key of the values of a mechanism in `Config.overrides`. Names of listeners have no lower case."""
    return f"{listener}.{mechanism.lower()}"


PROPERTIES: Final[dict[str, Property]] = properties_of(Config)
"""Every property by its dotted name."""
PROPERTY_OF_LISTENER: Final = re.compile(r"listener\.name\.(?P<listener>[^.]*)\.(?P<property>.*)")
"""A property of one listener, as running brokers accept it: the name of the listener has no period, as in Kafka."""

WITH_PREFIX_ALONE: Final = ("ssl.key.password", "ssl.keystore.", "ssl.truststore.")
"""Begins of the properties that can be set for one listener of a running broker, and not for all of them."""


def dynamic_of_listener(name: str) -> Property | None:
    """Return the property that `name` sets for one listener of a running broker; None if it sets none."""
    found = PROPERTY_OF_LISTENER.fullmatch(name)
    prop = None if found is None else PROPERTIES.get(found["property"])
    return prop if prop is not None and prop.scope is Scope.LISTENER else None


def of_all_listeners(name: str) -> Property | None:
    """Return the property that `name` sets for all listeners of a running broker; None if it sets none."""
    prop = None if name.startswith(WITH_PREFIX_ALONE) else PROPERTIES.get(name)
    return prop if prop is not None and prop.scope is Scope.LISTENER else None
