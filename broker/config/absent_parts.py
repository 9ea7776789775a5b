"""Properties of Apache Kafka for its process, its threads and its own clients. A node accepts them without effect.

A row has name, type, default and valid values of Apache Kafka 4.4. `odradek.broker.config.without_effect` has all rows.
"""

from typing import Final

from odradek.broker.config.property import Kind, Property, Scope
from odradek.broker.config.property import accepted as _row

BOOL, STR, INT, SHORT, LONG, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.SHORT, Kind.LONG, Kind.LIST
DOUBLE, PASSWORD, CLASS = Kind.DOUBLE, Kind.PASSWORD, Kind.CLASS
DYNAMIC, PER_BROKER, DYNAMIC_ALONE = Scope.DYNAMIC, Scope.PER_BROKER, Scope.DYNAMIC_ALONE

NO_CLASSES: Final = "No classes of Java are loaded. Remove the property."

# fmt: off
ABSENT_PARTS: Final[dict[str, tuple[Property, ...]]] = {
    NO_CLASSES: (
        _row("alter.config.policy.class.name", CLASS, None),
        _row("client.quota.callback.class", CLASS, None),
        _row("config.providers", LIST, (), scope=DYNAMIC),
        _row("create.topic.policy.class.name", CLASS, None),
        _row("group.streams.topology.description.plugin.class", CLASS, None),
        _row("principal.builder.class", CLASS, "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", scope=PER_BROKER),
        _row("sasl.client.callback.handler.class", CLASS, None),
        _row("sasl.login.callback.handler.class", CLASS, None),
        _row("sasl.login.class", CLASS, None),
        _row("sasl.oauthbearer.jwt.retriever.class", CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"),
        _row("sasl.oauthbearer.jwt.validator.class", CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"),
        _row("security.providers", STR, None),
        _row("ssl.engine.factory.class", CLASS, None, scope=PER_BROKER),
    ),
    "A node has one data directory.": (
        _row("alter.log.dirs.replication.quota.window.num", INT, 11, low=1),
        _row("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, low=1),
        _row("cordoned.log.dirs", LIST, (), scope=PER_BROKER),
        _row("log.dir.failure.timeout.ms", LONG, 30000, low=1),
        _row("num.replica.alter.log.dirs.threads", INT, None),
        _row("replica.alter.log.dirs.io.max.bytes.per.second", LONG, 9223372036854775807, low=0, scope=DYNAMIC_ALONE),
    ),
    "A node has one event loop and no pools of threads.": (
        _row("background.threads", INT, 10, low=1, scope=DYNAMIC),
        _row("delete.records.purgatory.purge.interval.requests", INT, 1),
        _row("fetch.purgatory.purge.interval.requests", INT, 1000),
        _row("group.consumer.assignor.offload.enable", BOOL, True, scope=DYNAMIC),
        _row("group.coordinator.background.threads", INT, 2, low=1),
        _row("group.coordinator.threads", INT, 4, low=1),
        _row("group.share.assignor.offload.enable", BOOL, True, scope=DYNAMIC),
        _row("group.streams.assignor.offload.enable", BOOL, True, scope=DYNAMIC),
        _row("log.cleaner.threads", INT, 1, low=0, scope=DYNAMIC),
        _row("num.io.threads", INT, 8, low=1, scope=DYNAMIC),
        _row("num.network.threads", INT, 3, low=1, scope=DYNAMIC),
        _row("num.recovery.threads.per.data.dir", INT, 2, low=1, scope=DYNAMIC),
        _row("num.replica.fetchers", INT, 1, low=1, scope=DYNAMIC),
        _row("producer.purgatory.purge.interval.requests", INT, 1000),
        _row("queued.max.requests", INT, 500, low=1),
        _row("share.fetch.purgatory.purge.interval.requests", INT, 1000),
    ),
    "GSSAPI is not supported.": (
        _row("sasl.kerberos.kinit.cmd", STR, "/usr/bin/kinit", scope=PER_BROKER),
        _row("sasl.kerberos.min.time.before.relogin", LONG, 60000, scope=PER_BROKER),
        _row("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), scope=PER_BROKER),
        _row("sasl.kerberos.service.name", STR, None, scope=PER_BROKER),
        _row("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, scope=PER_BROKER),
        _row("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, scope=PER_BROKER),
    ),
    "Nodes log in by PLAIN, SCRAM or the secret of the cluster.": (
        _row("sasl.login.connect.timeout.ms", INT, None),
        _row("sasl.login.read.timeout.ms", INT, None),
        _row("sasl.login.refresh.buffer.seconds", SHORT, 300, scope=PER_BROKER),
        _row("sasl.login.refresh.min.period.seconds", SHORT, 60, scope=PER_BROKER),
        _row("sasl.login.refresh.window.factor", DOUBLE, 0.8, scope=PER_BROKER),
        _row("sasl.login.refresh.window.jitter", DOUBLE, 0.05, scope=PER_BROKER),
        _row("sasl.login.retry.backoff.max.ms", LONG, 10000),
        _row("sasl.login.retry.backoff.ms", LONG, 100),
        _row("sasl.oauthbearer.assertion.algorithm", STR, "RS256"),
        _row("sasl.oauthbearer.assertion.claim.aud", STR, None),
        _row("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, low=0, high=86400),
        _row("sasl.oauthbearer.assertion.claim.iss", STR, None),
        _row("sasl.oauthbearer.assertion.claim.jti.include", BOOL, False),
        _row("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, low=0, high=3600),
        _row("sasl.oauthbearer.assertion.claim.sub", STR, None),
        _row("sasl.oauthbearer.assertion.file", STR, None),
        _row("sasl.oauthbearer.assertion.private.key.file", STR, None),
        _row("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None),
        _row("sasl.oauthbearer.assertion.template.file", STR, None),
        _row("sasl.oauthbearer.client.credentials.client.id", STR, None),
        _row("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None),
        _row("sasl.oauthbearer.scope", STR, None),
        _row("sasl.oauthbearer.token.endpoint.url", STR, None),
    ),
    "The property belongs to the TLS library of Java.": (
        _row("ssl.keymanager.algorithm", STR, "SunX509", scope=PER_BROKER),
        _row("ssl.provider", STR, None, scope=PER_BROKER),
        _row("ssl.secure.random.implementation", STR, None, scope=PER_BROKER),
        _row("ssl.trustmanager.algorithm", STR, "PKIX", scope=PER_BROKER),
    ),
    "The limits of requests to other nodes are constants.": (
        _row("controller.quorum.append.linger.ms", INT, 25, low=0),
        _row("controller.quorum.fetch.max.bytes", INT, 1048576, low=1),
        _row("controller.quorum.fetch.snapshot.max.bytes", INT, 1048576, low=1),
        _row("controller.quorum.request.timeout.ms", INT, 2000, low=0),
        _row("controller.quorum.retry.backoff.ms", INT, 20, low=0),
        _row("controller.socket.timeout.ms", INT, 30000),
        _row("replica.socket.timeout.ms", INT, 30000),
        _row("replication.quota.window.num", INT, 11, low=1),
        _row("replication.quota.window.size.seconds", INT, 1, low=1),
        _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000),
        _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100),
        _row("socket.connection.setup.timeout.max.ms", LONG, 30000),
        _row("socket.connection.setup.timeout.ms", LONG, 10000),
    ),
    "The controller does not log the duration of its events.": (
        _row("controller.performance.always.log.threshold.ms", LONG, 2000, low=0),
        _row("controller.performance.sample.period.ms", LONG, 60000, low=100),
    ),
    "A start has no time limit.": (
        _row("initial.broker.registration.timeout.ms", INT, 60000),
        _row("server.max.startup.time.ms", LONG, 9223372036854775807, low=0),
    ),
    "The operating system determines the size of socket buffers.": (
        _row("replica.socket.receive.buffer.bytes", INT, 65536),
        _row("socket.receive.buffer.bytes", INT, 102400),
        _row("socket.send.buffer.bytes", INT, 102400),
    ),
    "The metadata log is in the data directory, and each snapshot replaces the records before it.": (
        _row("internal.metadata.delete.delay.millis", LONG, 60000),
        _row("internal.metadata.log.segment.bytes", INT, None),
        _row("internal.metadata.max.batch.size.in.bytes", INT, 8388608),
        _row("metadata.log.dir", STR, None),
        _row("metadata.log.segment.ms", LONG, 604800000),
        _row("metadata.max.idle.interval.ms", INT, 500, low=0),
        _row("metadata.max.retention.bytes", LONG, 104857600),
        _row("metadata.max.retention.ms", LONG, 604800000),
    ),
    "Metrics are read with Prometheus (odradek.metrics.listener). Clients push no metrics.": (
        _row("kafka.metrics.polling.interval.secs", INT, 10, low=1),
        _row("kafka.metrics.reporters", LIST, ()),
        _row("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), scope=DYNAMIC),
        _row("metrics.num.samples", INT, 2, low=1),
        _row("metrics.recording.level", STR, "INFO"),
        _row("metrics.sample.window.ms", LONG, 30000, low=1),
        _row("telemetry.max.bytes", INT, 1048576, low=1),
    ),
    "The voters are configured statically.": (
        _row("controller.quorum.auto.join.enable", BOOL, False),
    ),
    "Coordinators write without delay and without compression. The feature group.version enables the protocols.": (
        _row("group.coordinator.append.linger.ms", INT, -1, low=-1),
        _row("group.coordinator.cached.buffer.max.bytes", INT, 1048588, low=524288, scope=DYNAMIC),
        _row("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"), choices=("consumer", "classic", "share", "streams")),
        _row("offsets.topic.compression.codec", INT, 0),
    ),
    "The behavior is fixed: a stop is controlled, all listeners start together, and no unstable version is served.": (
        _row("controlled.shutdown.enable", BOOL, True),
        _row("early.start.listeners", LIST, None),
        _row("unstable.api.versions.enable", BOOL, False),
        _row("unstable.feature.versions.enable", BOOL, False),
    ),
}
# fmt: on
"""Rows by the reason why they have no effect."""
