"""Agreement over TCP: core messages go out as Kafka's requests and come back as their answers, and the other way round."""

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
REPLIES: Final = (
    core.VoteReply,
    core.BeginQuorumEpochReply,
    core.EndQuorumEpochReply,
    core.FetchReply,
    core.FetchSnapshotReply,
)
REQUEST_TIMEOUT_MS: Final = 2_000
"""How long another node may take to answer a message of agreement, beside the time that a fetch may wait there."""
REMEDY: Final = "correct odradek.cluster.id, or controller.quorum.voters"
TWIN_AFTER_S: Final = 10.0
"""So long may other nodes take this one for their leader because of an earlier life of it."""
OPEN_QUESTIONS_MAX: Final = 10_000
"""Questions of other nodes that the core has not answered yet."""
_logger = structlog.get_logger("broker.raft")


class IdInUse(Exception):
    """Another process with this node's id leads the metadata log."""


class WrongCluster(Exception):
    """The nodes that this one is told to agree with are of another cluster."""


class PeerRaftNetwork:
    """Implements cluster.raft.ports.RaftNetwork; `ask` is for the handlers of what other nodes send."""

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
        """`on_failure` hears that this node is in the wrong cluster, as most of the others see it."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._peers = peers
        self._voters = list(voters)
        self._others = [voter for voter in voters if voter != node_id]
        self._told: dict[int, None] = {}
        self._on_failure = on_failure
        self._strangers: dict[int, None] = {}
        self._belongs = False
        self._twin_since_s: float | None = None
        self._request_timeout_ms = request_timeout_ms
        self._fetch_wait_ms = fetch_wait_ms
        self._step: Callable[[core.Message], None] | None = None
        self._ids = count(1)
        self._open: dict[int, Future[Any]] = {}

    def connect(self, step: Callable[[core.Message], None]) -> None:
        """`step` takes what has arrived for this node (RaftDriver.step)."""
        self._step = step

    # ---- what this node asks ----------------------------------------------------------------------------------------

    def send(self, message: core.Message) -> None:
        if isinstance(message, REPLIES):
            answered = self._open.pop(message.request_id, None)
            if answered is not None and not answered.done():
                answered.set_result(message)
            return
        request, version, channel, read = self._on_the_wire(message)
        answer = self._peers.request(
            message.target, channel, request, version, timeout_ms=self._request_timeout_ms + self._fetch_wait_ms
        )
        answer.add_done_callback(partial(self._answered, message, read))

    def _on_the_wire(self, message: Request) -> tuple[Message, int, Channel, Callable[[Any, Any], Reply | None]]:
        cluster_id = self.cluster_id
        if isinstance(message, core.VoteRequest):
            return wire.vote_request(message, cluster_id), wire.VOTE_VERSION, Channel.RAFT, wire.vote_reply
        if isinstance(message, core.BeginQuorumEpochRequest):
            return wire.begin_request(message, cluster_id), wire.BEGIN_VERSION, Channel.RAFT, wire.begin_reply
        if isinstance(message, core.EndQuorumEpochRequest):
            return wire.end_request(message, cluster_id), wire.END_VERSION, Channel.RAFT, wire.end_reply
        if isinstance(message, core.FetchSnapshotRequest):
            asked = wire.snapshot_request(message, cluster_id)
            return asked, wire.FETCH_SNAPSHOT_VERSION, Channel.RAFT_FETCH, wire.snapshot_reply
        request = wire.fetch_request(message, cluster_id, self._fetch_wait_ms)
        return request, wire.FETCH_VERSION, Channel.RAFT_FETCH, wire.fetch_reply

    def _answered(self, asked: Request, read: Callable[[Any, Any], Reply | None], answer: "Future[Any]") -> None:
        if answer.cancelled():
            return
        failure = answer.exception()
        reply = None
        if failure is None:
            self._check_cluster(asked.target, answer.result().error_code)
            try:
                reply = read(asked, answer.result())
            except (Malformed, ValueError) as error:
                _logger.warning("an answer about the metadata cannot be read", node=asked.target, reason=str(error))
        elif not isinstance(failure, OSError):
            raise failure
        if isinstance(reply, core.VoteReply | core.FetchReply):
            self._check_twin(asked.target, reply.leader_id)
        reply = reply or _no_answer(asked)
        if isinstance(reply, core.VoteReply) and reply.error is ErrorCode.INVALID_REQUEST:
            self._say_once(
                asked.target,
                "another node refuses to vote for this one: do both have the same controller.quorum.voters?",
            )
        if reply is not None and self._step is not None:
            self._step(reply)

    def _check_twin(self, node_id: int, leader_id: int) -> None:
        """A leader asks for no votes and fetches from nobody: where others go on following one of this id, it is another process.

        For a moment they may follow this node's own earlier life.
        """
        now_s = get_running_loop().time()
        if leader_id != self.node_id:
            self._twin_since_s = None
        elif self._twin_since_s is None:
            self._twin_since_s = now_s
        elif now_s - self._twin_since_s > TWIN_AFTER_S:
            told = f"node {node_id} follows another process with node.id {self.node_id} as its controller"
            self._on_failure("cluster", IdInUse(f"{told}: every node needs an id of its own"))

    def _say_once(self, node_id: int, what: str) -> None:
        if node_id not in self._told:
            self._told[node_id] = None
            _logger.error(what, node=node_id, voters=self._voters)

    def _check_cluster(self, node_id: int, error: int) -> None:
        """One node that says it is of another cluster is itself the stranger; most of them, and this node is."""
        if error != ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._belongs = True
        elif node_id not in self._strangers:
            self._strangers[node_id] = None
            told = f"node {node_id} belongs to another cluster than {self.cluster_id}, the one of this node"
            _logger.error(told, remedy=REMEDY)
            if not self._belongs and len(self._strangers) * 2 > len(self._others):
                self._on_failure("cluster", WrongCluster(f"{told}: {REMEDY}"))

    # ---- what other nodes ask ---------------------------------------------------------------------------------------

    def ask(self, question: Request) -> Awaitable[Any]:
        """The core's answer to a message from another node. Raises Refusal(BROKER_NOT_AVAILABLE) when there are too many."""
        if self._step is None or len(self._open) >= OPEN_QUESTIONS_MAX:
            raise Refusal(ErrorCode.BROKER_NOT_AVAILABLE)
        self._peers.heard(question.source)
        if isinstance(question, core.VoteRequest) and question.source not in self._voters:
            self._say_once(question.source, "a node asks for a vote that is not named in controller.quorum.voters here")
        request_id = next(self._ids)
        answer: Future[Any] = get_running_loop().create_future()
        self._open[request_id] = answer
        answer.add_done_callback(lambda _: self._open.pop(request_id, None))
        self._step(replace(question, request_id=request_id))
        return answer


def _no_answer(asked: Request) -> Reply | None:
    """A fetch is asked again soon, and not when the time for an answer is up."""
    lost = ErrorCode.NETWORK_EXCEPTION
    source, target, epoch, request_id = asked.target, asked.source, asked.epoch, asked.request_id
    if isinstance(asked, core.FetchRequest):
        return core.FetchReply(
            source, target, epoch, core.NO_NODE, asked.fetch_offset, error=lost, request_id=request_id
        )
    if isinstance(asked, core.FetchSnapshotRequest):
        return core.FetchSnapshotReply(
            source, target, epoch, core.NO_NODE, asked.snapshot, asked.position, error=lost, request_id=request_id
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
    """This node's replica of the metadata log, and its way to the others. Not started, and not connected. Raises OSError."""
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
    driver.on_leadership(_say_who_leads)
    return network, driver


def _say_who_leads(leadership: core.Leadership) -> None:
    _logger.info("who leads the metadata", leader=leadership.leader_id, epoch=leadership.epoch)
