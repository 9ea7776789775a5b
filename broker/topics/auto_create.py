"""Automatic creation of topics: those that clients use before they exist, and the topics of the coordinators."""

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
"""Replicas of a coordinator's topic if the configuration does not set them and the cluster has enough brokers."""
TRANSACTION_STATE_MIN_ISR: Final = 2
"""`min.insync.replicas` of `__transaction_state` if the configuration does not set it, as in Apache Kafka."""
BROKERS_WAIT_S: Final = 2.0
"""Maximum wait in seconds for brokers that are still starting, before a coordinator's topic is created without them."""
ARRIVAL_WAIT_S: Final = 5.0
"""Maximum wait in seconds until a created topic is in this broker's metadata image."""


class AutoTopicCreation:
    """Topics that this broker creates on demand.

    Concurrent requests for one topic share one request to the controller.
    """

    def __init__(
        self, config: Config, metadata: MetadataCache, controller: ControllerClient, *, voters: int = 0
    ) -> None:
        """Create the state. `voters` is the number of quorum voters that are brokers, too, registered or still
        starting.
        """
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._voters = voters
        self._replicas_set = {
            TRANSACTION_STATE: config.transaction_state_log_replication_factor,
            CONSUMER_OFFSETS: config.offsets_topic_replication_factor,
        }
        """Configured replication factor by coordinator's topic; 0 if it is not set."""
        self._in_progress: dict[str, Future[ErrorCode]] = {}

    async def create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create the topics of `names` that do not exist. Return the error of each name.

        The error is NONE if another broker created the topic first, and UNKNOWN_TOPIC_OR_PARTITION if the topic may not
        be created automatically. Return when this broker's metadata image has the topics, or after `ARRIVAL_WAIT_S`.
        """
        requested = list(names)
        creations = {name: self._begin(name) for name in requested if _may_be_created(name)}
        return {
            name: await creations[name] if name in creations else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name in requested
        }

    def _begin(self, name: str) -> "Future[ErrorCode]":
        future = self._in_progress.get(name)
        if future is None:
            future = ensure_future(self._create(name))
            self._in_progress[name] = future
            future.add_done_callback(lambda _: self._in_progress.pop(name, None))
        return future

    async def _create(self, name: str) -> ErrorCode:
        if name in self._replicas_set:
            await self._await_brokers(self._replicas(name))
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

    async def _await_brokers(self, count: int) -> None:
        """Wait until `count` brokers are active, at most `BROKERS_WAIT_S`.

        1. All brokers of a cluster start, and a client connects to the first one before the second one is registered.
        2. A coordinator's topic that is created now would have one replica permanently.
        3. With a short wait, the topic has all its replicas, and the brokers lead equal numbers of its partitions.
        """
        await self._until(lambda image: sum(1 for _ in image.active_brokers()) >= count, BROKERS_WAIT_S)

    async def _until(self, condition: Callable[[MetadataImage], bool], limit_s: float) -> None:
        """Wait until `condition` holds for the metadata image, at most `limit_s` seconds."""
        if condition(self._metadata.image):
            return
        reached: Future[None] = get_running_loop().create_future()

        def on_metadata(_delta: MetadataDelta, image: MetadataImage) -> None:
            if not reached.done() and condition(image):
                reached.set_result(None)

        self._metadata.subscribe(on_metadata)
        try:
            with suppress(TimeoutError):
                async with timeout(limit_s):
                    await reached
        finally:
            self._metadata.unsubscribe(on_metadata)

    def _specification(self, name: str) -> NewTopic:
        if name == TRANSACTION_STATE:
            return self._transaction_state()
        if name == CONSUMER_OFFSETS:
            return self._group_metadata()
        return NewTopic(name, USE_DEFAULT, USE_DEFAULT)

    def _transaction_state(self) -> NewTopic:
        """Return the specification of `__transaction_state`.

        Configured values of replication factor and min ISR are used even if the controller then refuses the topic.
        Values that are not configured are lowered to the number of brokers.
        """
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
        """Return the specification of `__consumer_offsets`, with Kafka's topic configuration.

        As in Kafka, its `min.insync.replicas` is the default of all topics.
        """
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
        """Return the replication factor of the coordinator's topic `name`."""
        brokers = max(1, self._voters, len(self._metadata.image.brokers))
        return self._replicas_set[name] or min(COORDINATOR_REPLICAS, brokers)


def _may_be_created(name: str) -> bool:
    """Return True if the topic is not internal, or is one of the two coordinators' topics.

    Kafka's other internal topics (such as `__share_group_state`) belong to features that this broker does not have.
    """
    return name in {TRANSACTION_STATE, CONSUMER_OFFSETS} or not is_internal(name)
