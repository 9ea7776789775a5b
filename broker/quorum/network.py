"""Network of the Raft driver: sends core messages as Kafka's requests, and decodes replies from the responses."""

from asyncio import Future, get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

import structlog

from odradek.broker.config.properties import Config
from odradek.broker.process.env import Env
from odradek.broker.quorum import wire
from odradek.broker.quorum.metadata_log import open_metadata_log
from odradek.broker.quorum.peers import Channel, Peers
from odradek.cluster.raft import messages as core
from odradek.cluster.raft.config import RaftConfig
from odradek.cluster.raft.driver import RaftDriver
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.schema import Message
from odradek.runtime.shard import FailureHandler
from odradek.runtime.tasks import Tasks
from odradek.storage.data_directory.log_manager import LogManager

Request = (
    core.VoteRequest
    | core.BeginQuorumEpochRequest
    | core.EndQuorumEpochRequest
    | core.FetchRequest
    | core.FetchSnapshotRequest
)
Reply = (
    core.VoteReply | core.BeginQuorumEpochReply | core.EndQuorumEpochReply | core.FetchReply | core.FetchSnapshotReply
)
REQUEST_TIMEOUT_MS: Final = 2_000
"""Maximum milliseconds for the response to a Raft request, in addition to the time that a fetch waits at the leader.

As Kafka's controller.quorum.request.timeout.ms.
"""
REMEDY: Final = "correct odradek.cluster.id, or controller.quorum.voters"
DUPLICATE_AFTER_S: Final = 10.0
"""Seconds for which other nodes may name this node as their leader although it does not lead.

For a moment they follow the previous incarnation of this node. After 10 s there must be a second process with its id.
"""
PENDING_REQUESTS_MAX: Final = 10_000
"""Maximum requests of other nodes without a reply of the core, per node. Further ones are refused."""
REPORTED_MAX: Final = 100
"""Maximum nodes per run of the broker for which a problem with the voters is logged. A request can contain any node
id.
"""
_logger = structlog.get_logger(__name__)


class DuplicateNodeId(Exception):
    """Another process with the id of this node leads the metadata log."""


class InconsistentClusterId(Exception):
    """Most nodes of controller.quorum.voters belong to another cluster."""


class PeerRaftNetwork:
    """Connection of the Raft core with the other nodes: an `odradek.cluster.raft.ports.RaftNetwork`.

    `send` sends the messages of the core; `receive` is for the handlers of other nodes' requests.
    """

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        peers: Peers,
        *,
        voters: Sequence[int],
        on_failure: FailureHandler,
        request_timeout_ms: int,
        fetch_wait_ms: int,
    ) -> None:
        """`on_failure` receives DuplicateNodeId and InconsistentClusterId.

        `fetch_wait_ms` is the maximum time that a fetch waits at the leader for new entries.
        """
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._peers = peers
        self._voters = list(voters)
        self._others = [voter for voter in voters if voter != node_id]
        self._reported: dict[int, None] = {}
        self._on_failure = on_failure
        self._foreign: dict[int, None] = {}
        self._cluster_confirmed = False
        self._duplicate_since_s: float | None = None
        self._request_timeout_ms = request_timeout_ms
        self._fetch_wait_ms = fetch_wait_ms
        self._step: Callable[[core.Message], None] | None = None
        self._ids = count(1)
        self._pending: dict[int, Future[Any]] = {}

    def connect(self, step: Callable[[core.Message], None]) -> None:
        """Pass all received messages to `step` (RaftDriver.step). Before this call, requests are refused."""
        self._step = step

    # ---- requests of this node --------------------------------------------------------------------------------------

    def send(self, message: core.Message) -> None:
        if isinstance(message, core.REPLIES):
            pending = self._pending.pop(message.request_id, None)
            if pending is not None and not pending.done():
                pending.set_result(message)
            return
        request, version, channel, decode_reply = self._encode(message)
        response = self._peers.request(
            message.target, channel, request, version, timeout_ms=self._request_timeout_ms + self._fetch_wait_ms
        )
        response.add_done_callback(partial(self._on_response, message, decode_reply))

    def _encode(self, message: Request) -> tuple[Message, int, Channel, Callable[[Any, Any], Reply | None]]:
        cluster_id = self.cluster_id
        if isinstance(message, core.VoteRequest):
            return wire.vote_request(message, cluster_id), wire.VOTE_VERSION, Channel.RAFT, wire.vote_reply
        if isinstance(message, core.BeginQuorumEpochRequest):
            return wire.begin_request(message, cluster_id), wire.BEGIN_VERSION, Channel.RAFT, wire.begin_reply
        if isinstance(message, core.EndQuorumEpochRequest):
            return wire.end_request(message, cluster_id), wire.END_VERSION, Channel.RAFT, wire.end_reply
        if isinstance(message, core.FetchSnapshotRequest):
            fetch_snapshot = wire.snapshot_request(message, cluster_id)
            return fetch_snapshot, wire.FETCH_SNAPSHOT_VERSION, Channel.RAFT_FETCH, wire.snapshot_reply
        request = wire.fetch_request(message, cluster_id, self._fetch_wait_ms)
        return request, wire.FETCH_VERSION, Channel.RAFT_FETCH, wire.fetch_reply

    def _on_response(
        self, request: Request, decode_reply: Callable[[Any, Any], Reply | None], response: "Future[Any]"
    ) -> None:
        if response.cancelled():
            return
        failure = response.exception()
        reply = None
        if failure is None:
            self._check_cluster(request.target, response.result().error_code)
            try:
                reply = decode_reply(request, response.result())
            except (Malformed, ValueError) as error:
                _logger.warning("malformed Raft response", node=request.target, reason=str(error))
        elif not isinstance(failure, OSError):
            raise failure
        if isinstance(reply, core.VoteReply | core.FetchReply):
            self._check_duplicate(request.target, reply.leader_id)
        reply = reply or _failed_reply(request)
        if isinstance(reply, core.VoteReply) and reply.error is ErrorCode.INVALID_REQUEST:
            self._log_once(request.target, "vote refused: controller.quorum.voters may differ between nodes")
        if reply is not None and self._step is not None:
            self._step(reply)

    def _check_duplicate(self, node_id: int, leader_id: int) -> None:
        """Report DuplicateNodeId if other nodes name this node as their leader for more than DUPLICATE_AFTER_S.

        A leader sends neither Vote nor Fetch. A response to one of these that names this node as the leader therefore
        means its previous incarnation, or another process with its id.
        """
        now_s = get_running_loop().time()
        if leader_id != self.node_id:
            self._duplicate_since_s = None
        elif self._duplicate_since_s is None:
            self._duplicate_since_s = now_s
        elif now_s - self._duplicate_since_s > DUPLICATE_AFTER_S:
            problem = f"node {node_id} follows another process with node.id {self.node_id} as its controller"
            self._on_failure("cluster", DuplicateNodeId(f"{problem}: every node needs an id of its own"))

    def _log_once(self, node_id: int, event: str) -> None:
        if node_id not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported[node_id] = None
            _logger.error(event, node=node_id, voters=self._voters)

    def _check_cluster(self, node_id: int, error: int) -> None:
        """Report InconsistentClusterId if more than half of the other voters belong to another cluster.

        If fewer do, they are misconfigured themselves. If one voter has confirmed the cluster id, this node is correct.
        """
        if error != ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._cluster_confirmed = True
        elif node_id not in self._foreign:
            self._foreign[node_id] = None
            problem = f"node {node_id} belongs to another cluster than {self.cluster_id}, the cluster of this node"
            _logger.error("cluster id differs", node=node_id, cluster_id=self.cluster_id, remedy=REMEDY)
            if not self._cluster_confirmed and len(self._foreign) * 2 > len(self._others):
                self._on_failure("cluster", InconsistentClusterId(f"{problem}: {REMEDY}"))

    # ---- requests of other nodes ------------------------------------------------------------------------------------

    def receive(self, request: Request) -> Awaitable[Any]:
        """Return the core's reply to a request from another node.

        Raise Refusal(BROKER_NOT_AVAILABLE) before `connect`, or beyond PENDING_REQUESTS_MAX.
        """
        if self._step is None or len(self._pending) >= PENDING_REQUESTS_MAX:
            raise Refusal(ErrorCode.BROKER_NOT_AVAILABLE)
        self._peers.note_contact(request.source)
        if isinstance(request, core.VoteRequest) and request.source not in self._voters:
            self._log_once(request.source, "vote request from a node outside controller.quorum.voters")
        request_id = next(self._ids)
        reply: Future[Any] = get_running_loop().create_future()
        self._pending[request_id] = reply
        reply.add_done_callback(lambda _: self._pending.pop(request_id, None))
        self._step(replace(request, request_id=request_id))
        return reply


def _failed_reply(request: Request) -> Reply | None:
    """Return a reply with NETWORK_EXCEPTION for a fetch without a response; None for other requests.

    With the reply, the core repeats a fetch soon. Without it, the core would wait until the fetch times out.
    """
    error = ErrorCode.NETWORK_EXCEPTION
    source, target, epoch, request_id = request.target, request.source, request.epoch, request.request_id
    if isinstance(request, core.FetchRequest):
        return core.FetchReply(
            source, target, epoch, core.NO_NODE, request.fetch_offset, error=error, request_id=request_id
        )
    if isinstance(request, core.FetchSnapshotRequest):
        return core.FetchSnapshotReply(
            source, target, epoch, core.NO_NODE, request.snapshot, request.position, error=error, request_id=request_id
        )
    return None


def make_raft(
    config: Config,
    env: Env,
    logs: LogManager,
    voters: Sequence[int],
    peers: Peers,
    *,
    tasks: Tasks,
    on_failure: FailureHandler,
) -> tuple[PeerRaftNetwork, RaftDriver]:
    """Return the network and the Raft driver of this node, neither connected nor started. Raise OSError."""
    raft_config = RaftConfig(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    network = PeerRaftNetwork(
        config.node_id,
        logs.directory.cluster_id,
        peers,
        voters=voters,
        on_failure=on_failure,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        fetch_wait_ms=raft_config.fetch_wait_ms_max,
    )
    driver = RaftDriver(
        config.node_id,
        voters,
        open_metadata_log(logs, config, env, voters),
        network,
        clock=env.clock,
        rng=env.rng,
        tasks=tasks,
        on_failure=on_failure,
        config=raft_config,
    )
    driver.on_leadership(_log_leader)
    return network, driver


def _log_leader(leadership: core.Leadership) -> None:
    _logger.info("metadata log leader changed", leader=leadership.leader_id, epoch=leadership.epoch)
