"""Topics that come into being without CreateTopics: those that clients ask for, and the broker's own."""

from asyncio import Future, ensure_future, get_running_loop, timeout
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from odradek.broker.config.properties import Config
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.cluster.controller.messages.topics import USE_DEFAULT, NewTopic
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.cluster.metadata.topic_names import is_internal
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

COORDINATOR_REPLICAS: Final = 3
"""Replicas of a coordinator's topic where nothing is set and there are enough brokers."""
TRANSACTION_STATE_MIN_ISR: Final = 2
BROKERS_WAIT_S: Final = 2.0
"""How long a coordinator's topic waits for brokers that are to hold it and are still starting."""
ARRIVAL_WAIT_S: Final = 5.0
"""How long a topic that was made takes to show in this broker's metadata, at most."""


class AutoTopicCreation:
    """Asks the controller once for a topic, however many clients want it at the same time."""

    def __init__(
        self, config: Config, metadata: MetadataCache, controller: ControllerClient, *, voters: int = 0
    ) -> None:
        """`voters`: nodes that vote on the metadata, each of which is a broker too, registered or about to be."""
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._voters = voters
        self._replicas_set = {
            TRANSACTION_STATE: config.transaction_state_log_replication_factor,
            CONSUMER_OFFSETS: config.offsets_topic_replication_factor,
        }
        """Coordinators' topics, and the replicas that somebody has asked for."""
        self._under_way: dict[str, Future[ErrorCode]] = {}

    async def create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create what does not exist yet; each name's error, NONE also where somebody else was faster.

        Returns when the topics are in this broker's metadata (or refused).
        """
        wanted = list(names)
        under_way = {name: self._begin(name) for name in wanted if _may_be_made(name)}
        return {
            name: await under_way[name] if name in under_way else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name in wanted
        }

    def _begin(self, name: str) -> "Future[ErrorCode]":
        future = self._under_way.get(name)
        if future is None:
            future = ensure_future(self._create(name))
            self._under_way[name] = future
            future.add_done_callback(lambda _: self._under_way.pop(name, None))
        return future

    async def _create(self, name: str) -> ErrorCode:
        if name in self._replicas_set:
            await self._brokers_are_there(self._replicas(name))
        topic = self._specification(name)
        try:
            created = await self._controller.create_topics([topic], timeout_ms=self._config.request_timeout_ms)
        except Refusal as refusal:
            return refusal.error
        error = created[0].error
        if error not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            return error
        await self._until(lambda image: image.topic(name) is not None, ARRIVAL_WAIT_S)
        return ErrorCode.NONE

    async def _brokers_are_there(self, wanted: int) -> None:
        # A client may come while the other brokers are still starting. Replicas on those who are there alone would be too
        # few for good; with all of them active each gets its share of leaders, and is in sync from the start.
        await self._until(lambda image: sum(1 for _ in image.active_brokers()) >= wanted, BROKERS_WAIT_S)

    async def _until(self, holds: Callable[[MetadataImage], bool], limit_s: float) -> None:
        """Wait for metadata in which `holds`, for so long at most."""
        if holds(self._metadata.image):
            return
        reached: Future[None] = get_running_loop().create_future()

        def look(_delta: MetadataDelta, image: MetadataImage) -> None:
            if not reached.done() and holds(image):
                reached.set_result(None)

        self._metadata.subscribe(look)
        try:
            with suppress(TimeoutError):
                async with timeout(limit_s):
                    await reached
        finally:
            self._metadata.unsubscribe(look)

    def _specification(self, name: str) -> NewTopic:
        if name == TRANSACTION_STATE:
            return self._transaction_state()
        if name == CONSUMER_OFFSETS:
            return self._group_metadata()
        return NewTopic(name, USE_DEFAULT, USE_DEFAULT)

    def _transaction_state(self) -> NewTopic:
        """Unset, replicas and min ISR are as large as the cluster allows; set, they are obeyed (and may be refused)."""
        config = self._config
        replicas = self._replicas(TRANSACTION_STATE)
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

    def _group_metadata(self) -> NewTopic:
        """As Kafka makes it: its min.insync.replicas is what brokers say of all topics."""
        config = self._config
        return NewTopic(
            CONSUMER_OFFSETS,
            config.offsets_topic_num_partitions,
            self._replicas(CONSUMER_OFFSETS),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )

    def _replicas(self, name: str) -> int:
        brokers = max(1, self._voters, len(self._metadata.image.brokers))
        return self._replicas_set[name] or min(COORDINATOR_REPLICAS, brokers)


def _may_be_made(name: str) -> bool:
    """Internal topics are made by what uses them; nothing uses the others of Kafka's yet."""
    return name in {TRANSACTION_STATE, CONSUMER_OFFSETS} or not is_internal(name)
