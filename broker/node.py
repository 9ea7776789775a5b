"""One node: a broker and a controller in one process, built, started and stopped in one visible order.

Each step of `start` puts its own end on a stack; `stop` takes them off, latest first. So what a failed start leaves behind,
and what a clean stop does, is what the steps say, and nothing else. The node in simulation is this one.
"""

from asyncio import CancelledError, Task, current_task, timeout
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from posixpath import dirname
from typing import TYPE_CHECKING, Any, Final

import structlog

from odradek.broker.config.addresses import parse_listeners, parse_metrics_listener, parse_voters
from odradek.broker.config.controller import answer_timeout_ms, controller_config, lifecycle_config
from odradek.broker.config.properties import Config
from odradek.broker.config.topics import TopicSettings
from odradek.broker.coordinators.groups import Groups
from odradek.broker.coordinators.transactions import Transactions
from odradek.broker.dispatch.dispatcher import Dispatcher, log_unexpected
from odradek.broker.dispatch.services import Services
from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.fetch.sessions import FetchSessions
from odradek.broker.network.connection import Connection
from odradek.broker.network.limits import ConnectionLimits
from odradek.broker.network.listeners import Acceptor, CannotListenError
from odradek.broker.network.server_state import Shared
from odradek.broker.partition.background_jobs import Jobs
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.process.env import Env
from odradek.broker.quorum.boot_marker import Life
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.broker.quorum.failure_detector import CannotWatchError, Membership
from odradek.broker.quorum.forwarding import Forwarding
from odradek.broker.quorum.metadata_log import follow_metadata
from odradek.broker.quorum.network import PeerRaftNetwork, make_raft
from odradek.broker.quorum.peers import TO_CONTROLLERS, Address, Channel, Peers
from odradek.broker.quorum.registration import controller_registration
from odradek.broker.quorum.suspected_leaders import Doubts
from odradek.broker.quorum.voters import missing_controllers, without_quorum
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.quota.client_quotas import ClientQuotas
from odradek.broker.replication.log_start_check import LostHeads
from odradek.broker.replication.wiring import host_partitions
from odradek.broker.requests.listener import BROKER, CLIENT, Listener
from odradek.broker.security.authorizer import AllowAll
from odradek.broker.topics.auto_create import TopicMaker
from odradek.cluster.controller.messages.brokers import BrokerRegistration
from odradek.cluster.controller.service import ControllerService
from odradek.cluster.controller.settings.features import SUPPORTED_FEATURES
from odradek.cluster.lifecycle.driver import BrokerLifecycle
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.image import METADATA_TOPIC, TRANSACTION_VERSION, Endpoint
from odradek.cluster.raft.quorum_state import BadQuorumState
from odradek.runtime.tasks import Tasks
from odradek.storage.data_directory.log_manager import LogManager

if TYPE_CHECKING:
    from odradek.broker.metrics.endpoint import Endpoint as MetricsEndpoint
    from odradek.broker.partition.registry import Partitions
    from odradek.cluster.raft.driver import RaftDriver
    from odradek.coordinator.group.service import GroupCoordinator
    from odradek.coordinator.txn.service import TransactionCoordinator

CONTROLLED_SHUTDOWN_S: Final = 5.0
"""How long a stop waits for the controller to move leaderships away."""
_logger = structlog.get_logger("broker.node")

Unexpected = Callable[[str, BaseException], None]


class CannotStartError(Exception):
    """The node does not run; the message is the one line a person gets to read."""


class Node:
    """`start` once, `stop` once. All fields below are there after `start`; tests look at them."""

    def __init__(
        self,
        config: Config,
        env: Env,
        *,
        on_fatal: Callable[[str], None] | None = None,
        on_unexpected: Unexpected | None = None,
        leader_term: type[LeaderTerm] = LeaderTerm,
    ) -> None:
        """`on_fatal(reason)`: the node cannot go on and has to be stopped. `on_unexpected(where, exception)`: a bug showed.

        `leader_term` is the class of leader terms; the simulator passes one that delays commits.
        """
        self.config = config
        self.env = env
        self._on_fatal = on_fatal
        self._on_unexpected = on_unexpected or log_unexpected
        self._leader_term = leader_term
        self._fatal: str | None = None
        self._starting: Task[Any] | None = None
        self._undo = AsyncExitStack()
        self.tasks = Tasks(self._on_unexpected)
        self.topic_settings = TopicSettings(config)
        self.metadata = MetadataCache()
        self.metadata.subscribe(self.topic_settings.on_metadata)
        self.quotas = ClientQuotas(config, env.clock)
        self.metadata.subscribe(self.quotas.on_metadata)
        self._voters = parse_voters(config)
        self._between_brokers = next(each.name for each in parse_listeners(config) if BROKER in each.roles)
        self._incarnation_id = env.new_uuid()
        self.acceptor = Acceptor(config.socket_listen_backlog_size)
        self._metrics: MetricsEndpoint | None = None
        self._budget = ByteBudget(config.byte_budget)
        self.life = Life(env.disk, config.log_dirs, env.boot_id)
        self.lost_heads = LostHeads(
            lambda: self.life.begin(self.lifecycle.broker_epoch), lambda error: self.fail(config.log_dirs, error)
        )
        self.logs: LogManager
        self.peers: Peers
        self.raft: RaftDriver
        self.controller: ControllerService
        self.controller_client: ControllerClient
        self.membership: Membership
        self.lifecycle: BrokerLifecycle
        self.partitions: Partitions
        self.coordinator: TransactionCoordinator
        self.groups: GroupCoordinator
        self.services: Services

    @property
    def listeners(self) -> list[Listener]:
        """Where the node listens, with the ports that were bound."""
        return self.acceptor.listeners

    async def start(self) -> None:
        """Returns when clients are served and a transaction could commit. Raises CannotStartError, after which `stop`."""
        self._starting = current_task()
        try:
            await self._open_directory()
            shared = await self._bind()
            await self._load_logs()
            await self._agree(shared)
            await self._watch()
            await self._register()
            self._host_partitions()
            self._serve()
        except CancelledError:
            if self._fatal is None or self._starting is None:
                raise
            self._starting.uncancel()  # it was `fail` that cancelled it, to end whatever it waited for
            raise CannotStartError(self._fatal) from None
        except (CannotListenError, CannotWatchError) as error:
            raise CannotStartError(str(error.args[-1])) from error
        except BadQuorumState as error:
            raise CannotStartError(f"{self.config.log_dirs}: {error}") from error
        except OSError as error:
            # A full disk names no file: what could not be written lies in the data directory.
            raise CannotStartError(f"{error.filename or self.config.log_dirs}: {error.strerror or error}") from error
        finally:
            self._starting = None

    async def stop(self) -> None:
        """Stop cleanly; also after a start that failed, and after a fatal failure (then nothing is marked as clean)."""
        await self._undo.aclose()

    def fail(self, where: str, failure: BaseException) -> None:
        """The node cannot go on without what has failed."""
        if self._fatal is not None:
            return
        self._fatal = f"{where}: {failure}"
        _logger.error("the node has to stop", where=where, reason=str(failure))
        if self._starting is not None:
            self._starting.cancel()
        elif self._on_fatal is not None:
            self._on_fatal(self._fatal)

    # -- the steps, in order

    async def _open_directory(self) -> None:
        """Lock the data directory and read who it belongs to."""
        config, env = self.config, self.env
        self.logs = LogManager(env.disk, config.log_dirs, self.topic_settings.log_config({}))
        self.logs.directory.claim(
            node_id=config.node_id,
            rng=env.rng,
            cluster_id=config.odradek_cluster_id,
            may_name_cluster=not self._voters or [voter.node_id for voter in self._voters] == [config.node_id],
        )
        self._undo.callback(self._close_logs)
        self._undo.push_async_callback(self.tasks.cancel_all)
        # A directory made just now is lost with its name, and all that is flushed inside, until its parent is synced.
        with suppress(PermissionError):  # the parent may be somebody else's; then it was made by them, long ago
            await env.disk.sync_directory(dirname(config.log_dirs.rstrip("/")) or ".")

    async def _bind(self) -> Shared[Connection]:
        """Take the ports: connections wait, unread, until the node serves."""
        config = self.config
        shared: Shared[Connection] = Shared(
            config, self._budget, ConnectionLimits(self.topic_settings, self.quotas), self.tasks
        )
        self._undo.push_async_callback(self._close_network)
        await self.acceptor.bind(parse_listeners(config), shared)
        if config.odradek_metrics_listener:
            await self._offer_metrics(shared, *parse_metrics_listener(config.odradek_metrics_listener))
        return shared

    async def _offer_metrics(self, shared: Shared[Connection], host: str, port: int) -> None:
        # A node without a metrics listener runs without the library prometheus_client.
        from odradek.broker.metrics.endpoint import Endpoint as MetricsEndpoint

        self._metrics = MetricsEndpoint(shared)
        await self._metrics.open(host, port)

    @property
    def metrics_port(self) -> int:
        """Return the port of the metrics listener; 0 if there is none."""
        return 0 if self._metrics is None else self._metrics.port

    async def _close_network(self) -> None:
        if self._metrics is not None:
            await self._metrics.close()
        await self.acceptor.close()

    async def _load_logs(self) -> None:
        """Recover every log of the directory, whoever it will belong to."""
        alone = [voter.node_id for voter in self._voters] in ([], [self.config.node_id])
        self.logs.load_all(self.env.clock.wall_ms(), refuse_loss=(METADATA_TOPIC,) if alone else ())

    async def _agree(self, shared: Shared[Connection]) -> None:
        """Take part in the agreement on the metadata log, and serve what the other nodes need for that."""
        config, env = self.config, self.env
        voters = [voter.node_id for voter in self._voters] or [config.node_id]
        self.peers = Peers(config.node_id, self._address_of, env.clock, self.tasks)
        network, self.raft = make_raft(
            config, env, self.logs, voters, self.peers, tasks=self.tasks, on_failure=self.fail
        )
        follow_metadata(self.raft, self.metadata, config, env, self.tasks, self.fail)
        self.controller = ControllerService(
            self.raft,
            config=controller_config(config, self.logs.directory.cluster_id),
            configs=self.topic_settings,
            rng=env.rng,
            clock=env.clock,
            tasks=self.tasks,
            on_failure=self.fail,
            bootstrap_levels={TRANSACTION_VERSION: config.odradek_initial_transaction_version},
        )
        self._undo.callback(self.peers.close)
        self._undo.push_async_callback(self.raft.stop)
        self._undo.callback(self.controller.stop)
        self._offer_early(shared, network)
        await self.raft.start()
        network.connect(self.raft.step)

    def _offer_early(self, shared: Shared[Connection], network: PeerRaftNetwork) -> None:
        """What handlers reach before there are partitions: enough to vote, to register, to follow the metadata."""
        config = self.config
        forwarding = Forwarding(lambda: self.raft.leader_id, self.peers, request_timeout_ms=config.request_timeout_ms)
        self.controller_client = ControllerClient(
            self.controller,
            lambda: self.raft.leader_id,
            self.peers,
            forwarding,
            request_timeout_ms=config.request_timeout_ms,
            answer_timeout_ms=answer_timeout_ms(config),
        )
        self.services = Services(
            config=config,
            clock=self.env.clock,
            budget=self._budget,
            metadata=self.metadata,
            raft=self.raft,
            raft_network=network,
            controller=self.controller,
            controller_client=self.controller_client,
            forwarding=forwarding,
            peers=self.peers,
            doubts=Doubts(self.peers, self.metadata, self.env.clock),
            topic_settings=self.topic_settings,
            authorizer=AllowAll(),
            quotas=self.quotas,
            apis=API_TABLE,
            cluster_id=self.logs.directory.cluster_id,
            node_id=config.node_id,
        )
        self.services.dispatcher = shared.dispatcher = Dispatcher(API_TABLE, self.services, self._on_unexpected)
        self.acceptor.open()

    async def _watch(self) -> None:
        """Watch the other nodes, and let them see that this one is alive."""
        self.membership = Membership(
            self.services, self.env, self._incarnation_id, self._voters, self._address_of, self.tasks
        )
        listener = next(each for each in self.listeners if each.name == self._between_brokers)
        self._undo.callback(await self.membership.start(listener.host, listener.port))

    async def _register(self) -> None:
        """Tell the controller that this broker is here, and wait until it may lead."""
        config = self.config
        left = self.logs.directory.previous_broker_epoch  # below 0 after anything but a clean stop
        vouched = left if left >= 0 else self.life.last_broker_epoch()
        registration = BrokerRegistration(
            config.node_id,
            self.logs.directory.cluster_id,
            self._incarnation_id,
            tuple(
                Endpoint(each.name, each.advertised_host, each.advertised_port)
                for each in self.listeners
                if CLIENT in each.roles
            ),
            SUPPORTED_FEATURES,
            (self.logs.directory.directory_id,),
            rack=config.broker_rack,
            previous_broker_epoch=vouched,
        )
        self.lifecycle = BrokerLifecycle(
            registration,
            self.controller_client,
            self.metadata,
            self.tasks,
            on_failure=self.fail,
            config=lifecycle_config(config),
            own_controller=controller_registration(config.node_id, self._incarnation_id, self._voters, self.listeners),
            missing=lambda: missing_controllers(config.node_id, self._voters, self.peers, self.env.clock),
            without_quorum=lambda: without_quorum(self._voters, self.peers, self.env.clock),
            on_registered=lambda epoch: self._registered(epoch, vouched=vouched >= 0),
        )
        self.lifecycle.start()
        await self.lifecycle.wait_unfenced()
        self.lost_heads.begin(self.logs, self.metadata.image, config.node_id, trusted=vouched >= 0)

    def _registered(self, epoch: int, *, vouched: bool) -> None:
        """Leave the epoch behind before anything is acknowledged as it. A start that may have lost something waits (`lost_heads`)."""
        if vouched or self.life.begun:
            try:
                self.life.begin(epoch)
            except OSError as error:
                self.fail(self.config.log_dirs, error)

    def _host_partitions(self) -> None:
        """Follow the metadata: host partitions, and coordinate the transactions and groups of those that are led."""
        config, env, spawn = self.config, self.env, self.tasks.spawn
        self.partitions, replication = host_partitions(
            self.services,
            env,
            self.logs,
            spawn,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            disk_failed=self._disk_failed,
            lost_heads=self.lost_heads,
            leader_term=self._leader_term,
        )
        self._undo.callback(replication.close)
        self._undo.callback(self.partitions.close)
        transactions = Transactions(
            self.services, spawn, broker_epoch=lambda: self.lifecycle.broker_epoch, on_failure=self._on_unexpected
        )
        self.coordinator = transactions.coordinator
        self._undo.callback(self.coordinator.stop)
        groups = Groups(self.services, env, spawn, on_failure=self._on_unexpected)
        self.groups = groups.coordinator
        self._undo.callback(self.groups.stop)
        self.metadata.subscribe_from_start(self.partitions.on_metadata)
        self.metadata.subscribe(replication.on_metadata)
        self.metadata.subscribe(transactions.on_metadata)
        self.metadata.subscribe(groups.on_metadata)
        self._warn_of_strays()
        Jobs(config, env.clock, self.partitions, self.logs, self.tasks, replication, self.topic_settings).start()
        self.services.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, env.rng)
        self.services.topic_maker = TopicMaker(config, self.metadata, self.controller_client, voters=len(self._voters))

    def _disk_failed(self, what: str, others_can_serve: bool) -> None:
        """A partition is offline for good. Where other brokers have replicas they get everything, and at once."""
        with suppress(OSError):
            self.life.forget()
        if others_can_serve:
            why = f"the disk of {self.config.log_dirs} has refused {what}"
            self.lifecycle.want_fence(f"{why}; free space or replace the disk, then restart this node")

    def _serve(self) -> None:
        """Take up the requests that wait, and all that come."""
        self._undo.push_async_callback(self._close_network)
        self._undo.push_async_callback(self._leave)
        self.acceptor.ready()
        listeners = [f"{each.name}://{each.advertised_host}:{each.advertised_port}" for each in self.listeners]
        _logger.info(
            "listening",
            listeners=", ".join(listeners),
            data=self.config.log_dirs,
            cluster=self.logs.directory.cluster_id,
        )

    def _warn_of_strays(self) -> None:
        """Logs that the metadata does not place here are left alone: if it is the metadata that is wrong, they are needed.

        The image is as new as the registration; it is asked and not `partitions`, which host its many partitions in slices.
        """
        image, node_id = self.metadata.image, self.config.node_id
        for log in self.logs:
            placed = image.partition(log.topic, log.partition)
            if log.topic != METADATA_TOPIC and (placed is None or node_id not in placed.replicas):
                _logger.warning("a log belongs to no partition of this broker", directory=log.directory)

    # -- where the others are

    def _address_of(self, node_id: int, channel: Channel) -> Address | None:
        """Controllers by `controller.quorum.voters`, brokers by what they have registered for other brokers."""
        unregistered = node_id not in self.metadata.image.brokers
        if channel in TO_CONTROLLERS or (unregistered and channel is Channel.PROBE):
            voter = next((voter for voter in self._voters if voter.node_id == node_id), None)
            return None if voter is None else (voter.host, voter.port)
        broker = self.metadata.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoint(self._between_brokers)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    # -- ends

    async def _leave(self) -> None:
        """A controlled shutdown: leaderships go first, so that clients look elsewhere at once."""
        if self._fatal is not None:
            return
        try:
            async with timeout(CONTROLLED_SHUTDOWN_S):
                await self.lifecycle.stop()
        except TimeoutError:
            _logger.warning("the controller did not let this broker go in time")

    def _close_logs(self) -> None:
        epoch = self.lifecycle.broker_epoch if hasattr(self, "lifecycle") else -1
        self.logs.close(clean=self._fatal is None and not self.lost_heads, broker_epoch=epoch)
