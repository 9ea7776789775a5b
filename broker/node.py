"""One node: a broker, a controller, or both in one process.

`start` performs its steps in order. Each step pushes its undo on a stack, and `stop` runs the stack in reverse order.
So the steps alone determine what a failed start cleans up and what a stop does. The simulator runs this class
unchanged.
"""

from asyncio import CancelledError, Task, current_task
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from posixpath import dirname
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import structlog

from odradek.broker.config.addresses import (
    controller_listener,
    has_other_nodes,
    inter_broker_listener,
    parse_listeners,
    parse_metrics_listener,
    parse_voters,
    remote_listeners,
)
from odradek.broker.config.authentication import logs_in, serves_all_nodes
from odradek.broker.config.controller import lifecycle_config
from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.broker.config.roles import hosts_broker
from odradek.broker.config.topics import TopicSettings
from odradek.broker.contexts import BrokerRequestContext, NodeContext, QuorumRequestContext
from odradek.broker.dispatch.dispatcher import Contexts, Dispatcher
from odradek.broker.dispatch.large_requests import LargeRequests
from odradek.broker.dispatch.request_metrics import api_metrics
from odradek.broker.dispatch.table import API_NAMES, API_TABLE, CONTROLLER_TABLE, EARLY_TABLE, served
from odradek.broker.network.connection import Connection
from odradek.broker.network.limits import ConnectionLimits
from odradek.broker.network.listeners import Acceptor, CannotListenError
from odradek.broker.network.server_state import ServerState
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.process.env import Env
from odradek.broker.process.expiry_clock import ExpiryClock
from odradek.broker.process.unexpected import Unexpected, UnexpectedExceptions, log_unexpected
from odradek.broker.quorum.boot_marker import BootMarker
from odradek.broker.quorum.failure_detector import CannotBindError, FailureDetector
from odradek.broker.quorum.peer_addresses import PeerAddresses
from odradek.broker.quorum.peers import Channel
from odradek.broker.quorum.registration import controller_registration
from odradek.broker.quorum.storage import note_lost_entries
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.quota.client_quotas import ClientQuotas
from odradek.broker.requests.api import AnyApi
from odradek.broker.requests.listener import Listener
from odradek.broker.security.audit import AuditLog
from odradek.broker.server.authentication import authentication_of, start_authentication
from odradek.broker.server.authorization import authorizer_of
from odradek.broker.server.broker_server import BrokerServer
from odradek.broker.server.node_identity import logins_of, principals_of_listeners
from odradek.broker.server.quorum_server import QuorumServer
from odradek.broker.server.registration import Registration
from odradek.broker.tls.certificates import Certificates
from odradek.broker.tls.node_tls import ListenerTls, NodeTls
from odradek.cluster.lifecycle.controller import register_controller
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.image import ScramKey
from odradek.cluster.raft.quorum_state import BadQuorumState
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.sasl.cluster_secret import SECRET_BYTES_MIN, ClusterSecret
from odradek.protocol.sasl.scram import Credential
from odradek.protocol.special_values import UNKNOWN_BROKER_EPOCH
from odradek.runtime.tasks import Tasks
from odradek.storage.data_directory.log_manager import LogManager

if TYPE_CHECKING:
    from odradek.broker.metrics.endpoint import Endpoint as MetricsEndpoint

_logger = structlog.get_logger(__name__)


class CannotStartError(Exception):
    """Error of a node that did not start. The message is complete for the operator."""


class Node:
    """One node. Call `start` once and `stop` once.

    The steps of `start` set the fields `logs` to `broker`, in this order.
    """

    logs: LogManager
    quorum: QuorumServer
    failure_detector: FailureDetector
    broker: BrokerServer

    def __init__(
        self,
        config: Config,
        env: Env,
        *,
        on_fatal: Callable[[str], None] | None = None,
        on_stop_step: Callable[[], None] = lambda: None,
        on_unexpected: Unexpected | None = None,
        leader_term: type[LeaderTerm] = LeaderTerm,
        make_dispatcher: Callable[..., Dispatcher] = Dispatcher,
        secret: ClusterSecret | None = None,
        bootstrap_scram: Mapping[ScramKey, Credential] = MappingProxyType({}),
    ) -> None:
        """Prepare a node; `start` starts it.

        `on_fatal` receives the reason when the running node cannot continue; the caller must then call `stop`.
        `stop` calls `on_stop_step` after each completed step, also from threads.
        `on_unexpected` receives each exception that is a bug; by default it is logged. `leader_term` is the class of
        leader terms; the simulator passes one that delays commits. `make_dispatcher` returns a dispatcher; a broker for
        tests has one with hooks. `secret` is the secret of the cluster, and
        `bootstrap_scram` has the first SCRAM credentials of a new cluster.
        """
        self.config = config
        self._expiry_clock = ExpiryClock(env.clock)
        env = self.env = replace(env, clock=self._expiry_clock)
        self._on_fatal = on_fatal
        self._on_stop_step = on_stop_step
        self._on_unexpected = UnexpectedExceptions(on_unexpected or log_unexpected)
        self._leader_term = leader_term
        self._make_dispatcher = make_dispatcher
        self._bootstrap_scram = bootstrap_scram
        self._fatal: str | None = None
        self._starting: Task[Any] | None = None
        self._undo = AsyncExitStack()
        self.tasks = Tasks(self._on_unexpected)
        self.topic_settings = TopicSettings(config)
        self.metadata = MetadataCache()
        self.metadata.subscribe(self.topic_settings.on_metadata)
        self.quotas = ClientQuotas(config, env.clock)
        self.metadata.subscribe(self.quotas.on_metadata)
        self._authorizer = authorizer_of(config, self.metadata)
        self._secret = secret or self._secret_of_lone_node()
        self._voters = parse_voters(config)
        self._inter_broker_listener = inter_broker_listener(config)
        self._addresses = PeerAddresses(
            self.metadata, self._voters, self._inter_broker_listener, controller_listener(config)
        )
        self._incarnation_id = env.new_uuid()
        self.acceptor = Acceptor(config.socket_listen_backlog_size, env.clock.monotonic_us)
        self._request_metrics = api_metrics(API_TABLE)
        self._tls: NodeTls | None = None
        self._certificates: Certificates | None = None
        self._metrics: MetricsEndpoint | None = None
        self._budget = ByteBudget(config.byte_budget, config.socket_request_max_bytes)
        self._large_requests = LargeRequests(self._budget, self._request_metrics)
        self._registration: Registration | None = None
        self._authentication = authentication_of(config, env, self.metadata, self._secret)

    def _secret_of_lone_node(self) -> ClusterSecret | None:
        """Return a random secret for a node with an authorizer and without other voters, otherwise None.

        The node sends requests to itself, and needs its permissions there.
        """
        config = self.config
        if not self._authorizer.enabled or not logs_in(config) or has_other_nodes(config):
            return None
        random_bits = self.env.rng.getrandbits
        return ClusterSecret(random_bits(8 * SECRET_BYTES_MIN).to_bytes(SECRET_BYTES_MIN, "big"), random_bits)

    @property
    def listeners(self) -> list[Listener]:
        """Return the listeners with the ports that were bound."""
        return self.acceptor.listeners

    @property
    def metrics_port(self) -> int:
        """Return the port of the metrics listener; 0 if there is none."""
        return 0 if self._metrics is None else self._metrics.port

    async def start(self) -> None:
        """Return when the node serves clients and can commit transactions.

        Raise CannotStartError if the node cannot start. The caller must call `stop` then, too.
        """
        self._starting = current_task()
        try:
            self.logs = await self._open_directory()
            node = self._node_context()
            await self._bind()
            self.quorum = await self._join_quorum(node)
            self.failure_detector = await self._detect_failures(node)
            await self.logs.load()
            if hosts_broker(self.config):
                registration = await self._register(node)
                self.broker = self._host_partitions(node, registration)
                self._serve(node, registration)
            else:
                await self._register_controller()
                self._serve_controller(node)
        except CancelledError:
            if self._fatal is None or self._starting is None:
                raise
            self._starting.uncancel()  # `fail` cancelled the start to end its waits
            raise CannotStartError(self._fatal) from None
        except ConfigError as error:
            raise CannotStartError(str(error)) from error
        except (CannotListenError, CannotBindError) as error:
            raise CannotStartError(str(error.args[-1])) from error
        except BadQuorumState as error:
            raise CannotStartError(f"{self.config.log_dirs}: {error}") from error
        except OSError as error:
            # The error of a full disk names no file. The failed write was to the data directory.
            raise CannotStartError(f"{error.filename or self.config.log_dirs}: {error.strerror or error}") from error
        finally:
            self._starting = None

    async def stop(self) -> None:
        """Stop the node, also after a failed start. After a fatal failure it leaves no clean shutdown marker."""
        await self._undo.aclose()

    def fail(self, where: str, failure: BaseException) -> None:
        """Report a fatal failure: the node cannot continue and stops. `where` names the failed part."""
        if self._fatal is not None:
            return
        self._fatal = f"{where}: {failure}"
        _logger.error("node stopping after a fatal failure", where=where, reason=str(failure))
        if self._starting is not None:
            self._starting.cancel()
        elif self._on_fatal is not None:
            self._on_fatal(self._fatal)

    # ---- the steps of `start`, in order -----------------------------------------------------------------------------

    async def _open_directory(self) -> LogManager:
        """Lock the data directory, read its cluster id and node id, and open the metadata log."""
        config, env = self.config, self.env
        self._tls = NodeTls(config, (*parse_listeners(config), *remote_listeners(config)), env.disk.read_file)
        if self._tls.listeners:
            self._certificates = Certificates(self._tls, config, env.disk, env.clock)
            self.metadata.subscribe(self._certificates.on_metadata)
        logs = LogManager(env.disk, config.log_dirs, self.topic_settings.log_config({}))
        logs.directory.claim(
            node_id=config.node_id,
            rng=env.rng,
            cluster_id=config.odradek_cluster_id,
            may_create_cluster=not self._voters or [voter.node_id for voter in self._voters] == [config.node_id],
        )
        self._undo.callback(self._close_logs, logs)
        self._expiry_clock.restore(env.disk, config.log_dirs)
        self._undo.push_async_callback(self.tasks.cancel_all)
        alone = [voter.node_id for voter in self._voters] in ([], [config.node_id])
        # Only a machine failure loses written bytes. Any other damage can be that of committed entries.
        boot_marker = BootMarker(env.disk, config.log_dirs, env.boot_id)
        kept_writes = logs.directory.clean_start or boot_marker.previous_broker_epoch() != UNKNOWN_BROKER_EPOCH
        logs.scan(
            env.clock.wall_ms(),
            env.clock.monotonic_ms(),
            refuse_loss=(CLUSTER_METADATA,) if alone else (),
            on_flushed_loss=partial(
                note_lost_entries, env.disk, config.log_dirs, may_truncate=not (alone and kept_writes)
            ),
        )
        # A new directory is durable only after a sync of its parent. Until then a power failure can remove it.
        with suppress(PermissionError):  # another user owns the parent, so the directory is not new
            await env.disk.sync_directory(dirname(config.log_dirs.rstrip("/")) or ".")
        return logs

    def _node_context(self) -> NodeContext:
        config = self.config
        return NodeContext(
            node_id=config.node_id,
            cluster_id=self.logs.directory.cluster_id,
            config=config,
            topic_settings=self.topic_settings,
            clock=self.env.clock,
            metadata=self.metadata,
            authorizer=self._authorizer,
            quotas=self.quotas,
            authentication=self._authentication,
            apis=served(API_TABLE if hosts_broker(config) else CONTROLLER_TABLE, config),
            audit=AuditLog(self.env.clock, API_NAMES) if self._authorizer.enabled else None,
            secret=self._secret,
            certificates=self._certificates,
        )

    async def _bind(self) -> None:
        """Bind the ports. Connections wait unread until the node serves them."""
        config = self.config
        shared: ServerState[Connection] = ServerState(
            config,
            self._budget,
            ConnectionLimits(self.topic_settings, self.quotas, self.env.connections_max),
            self.tasks,
        )
        self._undo.push_async_callback(self._close_network)
        await self.acceptor.bind(
            parse_listeners(config),
            shared,
            tls=self._tls,
            authenticates=self._secret is not None,
            serves_all_nodes=serves_all_nodes(config),
            nodes=principals_of_listeners(config, self._authorizer),
        )
        start_authentication(self._authentication, self.env, self.tasks, self.logs.directory)
        if self._certificates is not None:
            self.tasks.spawn(self._certificates.run(), "replace certificates")
        if config.odradek_metrics_listener:
            await self._bind_metrics(shared, *parse_metrics_listener(config.odradek_metrics_listener))

    async def _bind_metrics(self, shared: ServerState[Connection], host: str, port: int) -> None:
        # Imported here: a node without a metrics listener runs without the library prometheus_client.
        from odradek.broker.metrics.endpoint import Endpoint as MetricsEndpoint
        from odradek.broker.metrics.scrape import loading_samples, login_samples, server_samples

        metrics = self._metrics = MetricsEndpoint(self.tasks)
        metrics.sources.append(partial(server_samples, shared, self._request_metrics, metrics.lag, self._on_unexpected))
        metrics.sources.append(partial(login_samples, shared, self._authentication))
        metrics.sources.append(partial(loading_samples, self.logs))
        await metrics.open(host, port)

    async def _join_quorum(self, node: NodeContext) -> QuorumServer:
        """Take part in the metadata quorum, and serve the requests of other nodes for it."""
        config = self.config
        quorum = QuorumServer(
            node,
            self.env,
            self.logs,
            voters=self._voters,
            address_of=self._addresses.address_of,
            tls_of=self._tls_to,
            login_of=logins_of(config, node.secret, self._addresses.listener_of, self.env.rng.getrandbits),
            tasks=self.tasks,
            on_failure=self.fail,
            on_bug=self._on_unexpected,
            bootstrap_scram=self._bootstrap_scram,
        )
        self._undo.push_async_callback(quorum.stop)
        early = served(EARLY_TABLE, config)
        self.acceptor.open(self._dispatcher(early, QuorumRequestContext, (node, quorum.context), quorum))
        await quorum.start()
        return quorum

    def _tls_to(self, node_id: int, channel: Channel) -> ListenerTls | None:
        """Return the TLS of connections to another node for a purpose; None if they are not encrypted."""
        return None if self._tls is None else self._tls.listener(self._addresses.listener_of(node_id, channel))

    async def _detect_failures(self, node: NodeContext) -> FailureDetector:
        """Start the failure detector."""
        quorum = self.quorum
        detector = FailureDetector(
            self.config,
            self.env,
            node.cluster_id,
            self._incarnation_id,
            voters=self._voters,
            address_of=self._addresses.address_of,
            metadata=self.metadata,
            peers=quorum.peers,
            raft=quorum.raft,
            controller=quorum.controller,
            suspected_leaders=quorum.suspected_leaders,
            tasks=self.tasks,
            on_clock=self._expiry_clock.received,
            secret=self._secret,
        )
        name = self._inter_broker_listener if hosts_broker(self.config) else controller_listener(self.config)
        listener = next(known for known in self.listeners if known.name == name)
        self._undo.callback(await detector.start(listener.host, listener.port))
        return detector

    async def _register(self, node: NodeContext) -> Registration:
        """Register with the controller, and wait until this broker is unfenced.

        All logs are open: the registration states whether records were lost.
        """
        registration = self._registration = Registration(
            node,
            self.env,
            self.logs,
            self.quorum,
            incarnation_id=self._incarnation_id,
            voters=self._voters,
            listeners=self.listeners,
            tasks=self.tasks,
            on_failure=self.fail,
        )
        await registration.register()
        return registration

    async def _register_controller(self) -> None:
        """Register this node as a controller, and wait until its metadata has that. It is no broker."""
        registration = controller_registration(self.config.node_id, self._incarnation_id, self._voters, self.listeners)
        assert registration is not None, "a check of the configuration requires that the node is a voter"
        timing = lifecycle_config(self.config)
        registering = register_controller(
            self.quorum.controller_client,
            registration,
            request_timeout_ms=timing.request_timeout_ms,
            retry_backoff_ms=timing.retry_backoff_ms,
        )
        self.tasks.spawn(registering, "register the controller")
        await self.metadata.wait_until(
            lambda image: (
                (own := image.controllers.get(registration.controller_id)) is not None
                and own.incarnation_id == registration.incarnation_id
            )
        )

    def _serve_controller(self, node: NodeContext) -> None:
        """Serve all requests of a controller."""
        self._undo.push_async_callback(self._close_network)
        contexts = (node, self.quorum.context)
        self.acceptor.ready(self._dispatcher(node.apis, QuorumRequestContext, contexts, self.quorum))
        self._expiry_clock.start(self.env.disk, self.config.log_dirs, self.tasks.spawn)
        if self._metrics is not None:
            from odradek.broker.metrics.scrape import controller_samples, detector_samples

            self._metrics.sources.append(partial(controller_samples, node, self.quorum.context))
            self._metrics.sources.append(partial(detector_samples, self.failure_detector))
        self._log_listeners()

    def _dispatcher(
        self, table: Sequence[AnyApi], context: type[QuorumRequestContext], contexts: Contexts, quorum: QuorumServer
    ) -> Dispatcher:
        return self._make_dispatcher(
            table,
            context,
            contexts,
            forwarding=quorum.forwarding,
            metrics=self._request_metrics,
            large_requests=self._large_requests,
            on_unexpected=self._on_unexpected,
        )

    def _log_listeners(self) -> None:
        listeners = [
            f"{listener.name}://{listener.advertised_host}:{listener.advertised_port}" for listener in self.listeners
        ]
        _logger.info(
            "listening",
            listeners=", ".join(listeners),
            data=self.config.log_dirs,
            cluster=self.logs.directory.cluster_id,
        )

    def _host_partitions(self, node: NodeContext, registration: Registration) -> BrokerServer:
        broker = BrokerServer(
            node,
            self.env,
            self.logs,
            self.quorum,
            registration,
            budget=self._budget,
            voters=len(self._voters),
            leader_term=self._leader_term,
            tasks=self.tasks,
            on_failure=self._on_unexpected,
        )
        self._undo.push_async_callback(broker.stop)
        self._expiry_clock.start(self.env.disk, self.config.log_dirs, self.tasks.spawn)
        return broker

    def _serve(self, node: NodeContext, registration: Registration) -> None:
        """Serve all requests, beginning with those that waited for the registration."""
        quorum, broker = self.quorum, self.broker
        self._undo.push_async_callback(self._close_network)
        self._undo.push_async_callback(self._leave, registration)
        contexts = (node, quorum.context, broker.context)
        self.acceptor.ready(self._dispatcher(node.apis, BrokerRequestContext, contexts, quorum))
        if self._metrics is not None:
            from odradek.broker.metrics.scrape import broker_samples, detector_samples

            self._metrics.sources.append(partial(detector_samples, self.failure_detector))
            self._metrics.sources.append(partial(broker_samples, node, quorum.context, broker.context))
        self._log_listeners()

    # ---- undo -------------------------------------------------------------------------------------------------------

    async def _leave(self, registration: Registration) -> None:
        if self._fatal is None:
            await registration.leave()
        self._on_stop_step()

    async def _close_network(self) -> None:
        if self._metrics is not None:
            await self._metrics.close()
        await self.acceptor.close()

    def _close_logs(self, logs: LogManager) -> None:
        registration = self._registration
        if registration is None:
            logs.close(clean=self._fatal is None, broker_epoch=UNKNOWN_BROKER_EPOCH, on_step=self._on_stop_step)
            return
        clean = self._fatal is None and not registration.log_start_checks
        # Before its unfencing, the checks of the log starts have not begun.
        broker_epoch = registration.broker_epoch if registration.vouches else UNKNOWN_BROKER_EPOCH
        logs.close(clean=clean, broker_epoch=broker_epoch, on_step=self._on_stop_step)
