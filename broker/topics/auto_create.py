"""Automatic creation of topics: those that clients use before they exist, and the topics of the coordinators.

A request of a client can name any number of missing topics. The broker creates a bounded number of them for each
request, for each client address and altogether. The other topics receive LEADER_NOT_AVAILABLE, which the clients of all
versions retry: Java clients and librdkafka request the metadata of such a topic again, and keep their records.
"""

from asyncio import Future, ensure_future, get_running_loop, shield, timeout
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from odradek.broker.config.properties import Config
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.broker.quota.controller_mutations import UNBOUNDED, ControllerMutationQuota
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
TOPICS_PER_REQUEST_MAX: Final = 100
"""Maximum topics that one Metadata request creates. The controller decides on 100 topics of one partition in about
5 ms.
"""
PARTITIONS_PER_REQUEST_MAX: Final = 1_000
"""Maximum partitions that one Metadata request creates, if it creates more than one topic. With a large
`num.partitions`, a request creates fewer topics.
"""
TOPICS_PER_ADDRESS_MAX: Final = 200
"""Maximum topics that a broker creates at the same time for the clients of one address: two full requests."""
TOPICS_MAX: Final = 1_000
"""Maximum topics that a broker creates at the same time. Five addresses with their full share fill it."""


class AutoTopicCreation:
    """Topics that this broker creates on demand.

    Concurrent requests for one topic share one request to the controller. The missing topics of one client request are
    one request to the controller.
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
        self._in_progress: dict[str, Future[dict[str, ErrorCode]]] = {}
        self._by_address: Counter[str] = Counter()

    async def create(
        self,
        names: Iterable[str],
        *,
        address: str = "",
        mutations: ControllerMutationQuota = UNBOUNDED,
        before: int = 0,
    ) -> dict[str, ErrorCode]:
        """Create the topics of `names` that do not exist. Return the error of each name.

        The error is NONE if another broker created the topic first, and UNKNOWN_TOPIC_OR_PARTITION if the topic may not
        be created automatically. It is LEADER_NOT_AVAILABLE beyond the limits of this module, and if `mutations`, the
        quota of the client, is exceeded. The topics of the coordinators count against neither. `before` is the number
        of topics that earlier parts of the same request have created.
        Return when this broker's metadata image has the topics, or after `ARRIVAL_WAIT_S`.
        """
        requested = dict.fromkeys(names)
        results: dict[str, ErrorCode] = {}
        missing: list[str] = []
        capacity = self._capacity(address, before)
        for name in requested:
            if name in self._in_progress:
                continue
            if name in self._replicas_set:
                self._begin([name])
            elif is_internal(name):
                # Kafka's other internal topics (such as `__share_group_state`) belong to features of other versions.
                results[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(missing) < capacity and self._within_quota(mutations):
                missing.append(name)
            else:
                capacity = 0
                results[name] = ErrorCode.LEADER_NOT_AVAILABLE
        if missing:
            self._begin(missing, address)
        creations = {name: self._in_progress[name] for name in requested if name not in results}
        for name, creation in creations.items():
            # A request that is canceled must not cancel the creation, which other requests wait for, too.
            results[name] = (await shield(creation))[name]
        return {name: results[name] for name in requested}

    def _capacity(self, address: str, before: int) -> int:
        """Return the number of topics that a request from `address` may create now, after `before` earlier ones."""
        partitions = max(1, self._config.num_partitions)
        return min(
            min(TOPICS_PER_REQUEST_MAX, max(1, PARTITIONS_PER_REQUEST_MAX // partitions)) - before,
            TOPICS_PER_ADDRESS_MAX - self._by_address[address],
            TOPICS_MAX - self._by_address.total(),
        )

    def _within_quota(self, mutations: ControllerMutationQuota) -> bool:
        try:
            mutations.record(max(1, self._config.num_partitions))
        except Refusal:
            return False
        return True

    def _begin(self, names: Sequence[str], address: str | None = None) -> None:
        """Start the creation of topics. `address` is None for a topic of the coordinators, which has no limit."""
        creation: Future[dict[str, ErrorCode]] = ensure_future(self._create(names))
        self._in_progress |= dict.fromkeys(names, creation)
        if address is not None:
            self._by_address[address] += len(names)

        def done(_creation: object) -> None:
            for name in names:
                self._in_progress.pop(name, None)
            if address is not None:
                self._by_address[address] -= len(names)
                if not self._by_address[address]:
                    del self._by_address[address]

        creation.add_done_callback(done)

    async def _create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        for name in names:
            if name in self._replicas_set:
                await self._await_brokers(self._replicas(name))
        topics = [self._specification(name) for name in names]
        try:
            created = await self._controller.create_topics(topics, timeout_ms=self._config.request_timeout_ms)
        except Refusal as refusal:
            return dict.fromkeys(names, refusal.error)
        errors = {topic.name: topic.error for topic in created}
        arriving = [name for name, error in errors.items() if error in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}]
        await self._until(lambda image: all(image.topic(name) is not None for name in arriving), ARRIVAL_WAIT_S)
        return errors | dict.fromkeys(arriving, ErrorCode.NONE)

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
