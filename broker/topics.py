"""Topics that come into being without CreateTopics: those that clients ask for, and the broker's own."""

from asyncio import Future, ensure_future
from collections.abc import Iterable
from typing import Any, Final

from broker.config import Config
from broker.topic_names import TRANSACTION_STATE, is_internal
from cluster.controller.port import USE_DEFAULT, BrokerControllerPort, CreatedTopic, NewTopic
from cluster.metadata import MetadataCache
from protocol.errors import ErrorCode, Refusal

TRANSACTION_STATE_REPLICAS: Final = 3
"""Replicas of the transaction log where nothing is set and there are enough brokers."""
TRANSACTION_STATE_MIN_ISR: Final = 2


class TopicMaker:
    """Asks the controller once for a topic, however many clients want it at the same time."""

    def __init__(self, config: Config, metadata: MetadataCache, controller: BrokerControllerPort) -> None:
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._under_way: dict[str, Future[Any]] = {}

    async def create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create what does not exist yet; each name's error, NONE also where somebody else was faster.

        Returns when the topics are in this broker's metadata (or refused).
        """
        wanted = list(names)
        under_way = {name: self._begin(name) for name in wanted if _may_be_made(name)}
        return {
            name: await self._outcome(under_way[name]) if name in under_way else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name in wanted
        }

    def _begin(self, name: str) -> "Future[Any]":
        future = self._under_way.get(name)
        if future is None:
            topic = self._specification(name)
            future = ensure_future(self._controller.create_topics([topic], timeout_ms=self._config.request_timeout_ms))
            self._under_way[name] = future
            future.add_done_callback(lambda _: self._under_way.pop(name, None))
        return future

    async def _outcome(self, future: "Future[Any]") -> ErrorCode:
        try:
            created: CreatedTopic = (await future)[0]
        except Refusal as refusal:
            return refusal.error
        return ErrorCode.NONE if created.error is ErrorCode.TOPIC_ALREADY_EXISTS else created.error

    def _specification(self, name: str) -> NewTopic:
        if name == TRANSACTION_STATE:
            return self._transaction_state()
        return NewTopic(name, USE_DEFAULT, USE_DEFAULT)

    def _transaction_state(self) -> NewTopic:
        """Unset, replicas and min ISR are as large as the cluster allows; set, they are obeyed (and may be refused)."""
        config = self._config
        alive = max(1, sum(1 for _ in self._metadata.image.active_brokers()))
        replicas = config.transaction_state_log_replication_factor or min(TRANSACTION_STATE_REPLICAS, alive)
        min_isr = config.transaction_state_log_min_isr or min(TRANSACTION_STATE_MIN_ISR, replicas)
        return NewTopic(
            TRANSACTION_STATE,
            config.transaction_state_log_num_partitions,
            replicas,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(min_isr)),
                ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )


def _may_be_made(name: str) -> bool:
    """Internal topics are made by what uses them; nothing uses the others of Kafka's yet."""
    return name == TRANSACTION_STATE or not is_internal(name)
