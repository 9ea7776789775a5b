"""Agreement over TCP: core messages go out as Kafka's requests and come back as their answers, and the other way round."""

from asyncio import Future, get_running_loop
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

import structlog

from broker import raft_wire as wire
from broker.peers import Channel, Peers
from cluster.raft import messages as core
from protocol.errors import ErrorCode, Malformed, Refusal
from protocol.schema import Message

Request = core.VoteRequest | core.BeginQuorumEpochRequest | core.EndQuorumEpochRequest | core.FetchRequest
Reply = core.VoteReply | core.BeginQuorumEpochReply | core.EndQuorumEpochReply | core.FetchReply
REPLIES: Final = (core.VoteReply, core.BeginQuorumEpochReply, core.EndQuorumEpochReply, core.FetchReply)
OPEN_QUESTIONS_MAX: Final = 10_000
"""Questions of other nodes that the core has not answered yet."""
_logger = structlog.get_logger("broker.raft")


class PeerRaftNetwork:
    """Implements cluster.raft.ports.RaftNetwork; `ask` is for the handlers of what other nodes send."""

    def __init__(
        self, node_id: int, cluster_id: str, peers: Peers, *, request_timeout_ms: int, fetch_wait_ms: int
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._peers = peers
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
        request = wire.fetch_request(message, cluster_id, self._fetch_wait_ms)
        return request, wire.FETCH_VERSION, Channel.RAFT_FETCH, wire.fetch_reply

    def _answered(self, asked: Request, read: Callable[[Any, Any], Reply | None], answer: "Future[Any]") -> None:
        if answer.cancelled():
            return
        failure = answer.exception()
        reply = None
        if failure is None:
            try:
                reply = read(asked, answer.result())
            except (Malformed, ValueError) as error:
                _logger.warning("an answer about the metadata cannot be read", node=asked.target, reason=str(error))
        elif not isinstance(failure, OSError):
            raise failure
        if reply is None and isinstance(asked, core.FetchRequest):
            # Ask again soon, not when the time for an answer is up.
            reply = core.FetchReply(
                asked.target,
                asked.source,
                asked.epoch,
                core.NOBODY,
                asked.fetch_offset,
                error=ErrorCode.NETWORK_EXCEPTION,
                request_id=asked.request_id,
            )
        if reply is not None and self._step is not None:
            self._step(reply)

    # ---- what other nodes ask ---------------------------------------------------------------------------------------

    def ask(self, question: Request) -> Awaitable[Any]:
        """The core's answer to a message from another node. Raises Refusal(BROKER_NOT_AVAILABLE) when there are too many."""
        if self._step is None or len(self._open) >= OPEN_QUESTIONS_MAX:
            raise Refusal(ErrorCode.BROKER_NOT_AVAILABLE)
        self._peers.heard(question.source)
        request_id = next(self._ids)
        answer: Future[Any] = get_running_loop().create_future()
        self._open[request_id] = answer
        answer.add_done_callback(lambda _: self._open.pop(request_id, None))
        self._step(replace(question, request_id=request_id))
        return answer
