"""Transactions on this broker, put together: its coordinator, the way to the others, the markers it writes."""

from collections.abc import Callable
from typing import Final

from odradek.broker.coordinators.image_ports import CoordinatorTopic, ImageFeatures, ImageLeaders, ProducerIdBlocks
from odradek.broker.coordinators.marker_sender import MarkerSender, RemoteMarkerSender
from odradek.broker.coordinators.marker_writer import COMMIT_MS_MAX, MarkerWriter
from odradek.broker.coordinators.remote_txn_coordinator import Coordinators
from odradek.broker.coordinators.shard_loader import FOLLOW_INTERVAL_MS, CoordinatorShards
from odradek.broker.coordinators.txn_verification import TransactionVerifier
from odradek.broker.dispatch.services import Services
from odradek.broker.partition.background_jobs import repeat
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.cluster.metadata.topic_names import TRANSACTION_STATE
from odradek.coordinator.txn.ports import TopicPartition, TxnConfig
from odradek.coordinator.txn.producer_ids import ProducerIdPool
from odradek.coordinator.txn.service import TransactionCoordinator
from odradek.coordinator.txn.state import Partitions as TopicPartitions
from odradek.runtime.tasks import Spawn

MARKER_ANSWER_MS: Final = 5 * COMMIT_MS_MAX
"""How long the answer of a leader is waited for whose connection stands; it gives it within a COMMIT_MS_MAX."""


class Transactions:
    """Fills in `services.transactions`, `verification` and `markers`; `services.partitions` has to be there."""

    def __init__(
        self,
        services: Services,
        spawn: Spawn,
        *,
        broker_epoch: Callable[[], int],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        """`broker_epoch()` is that of this broker's registration; `on_failure` hears of bugs and broken disks."""
        config, metadata = services.config, services.metadata
        topic = CoordinatorTopic(TRANSACTION_STATE, metadata, config.transaction_state_log_num_partitions)
        blocks = ProducerIdBlocks(services.controller_client, services.node_id, broker_epoch)
        producer_ids = ProducerIdPool(blocks.allocate, spawn)
        services.markers = MarkerWriter(services.partitions, services.clock, config.request_timeout_ms)
        remote = RemoteMarkerSender(services.peers, MARKER_ANSWER_MS)
        self.coordinator = services.transactions = TransactionCoordinator(
            clock=services.clock,
            config=_txn_config(services),
            producer_ids=producer_ids,
            leaders=ImageLeaders(metadata),
            sender=MarkerSender(services.node_id, services.markers, remote),
            features=ImageFeatures(metadata),
            shard_count=topic.partitions,
            is_awaited=lambda shard: topic.leads(services.node_id, shard),
            spawn=spawn,
            on_failure=on_failure,
        )
        self._coordinators = Coordinators(
            services.node_id,
            self.coordinator,
            services.peers,
            topic.leaders,
            timeout_ms=config.request_timeout_ms,
        )
        services.verification = TransactionVerifier(self._coordinators, config)
        load_bytes = config.transaction_state_log_load_buffer_size
        shards = CoordinatorShards(
            TRANSACTION_STATE, self.coordinator, services.partitions, spawn, services.clock, load_bytes=load_bytes
        )
        services.partitions.listen(TRANSACTION_STATE, shards)
        spawn(repeat(shards.follow, FOLLOW_INTERVAL_MS, FOLLOW_INTERVAL_MS), "follow other coordinators")
        producer_ids.prefetch()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the leaders of the partitions that transactions are written to. To be told after the partitions."""
        changed = led_anew(delta, image)
        if changed:
            self.coordinator.leaders_changed(changed)
            if any(partition.topic == TRANSACTION_STATE for partition in changed):
                self._coordinators.leaders_changed()


def led_anew(delta: MetadataDelta, image: MetadataImage) -> TopicPartitions:
    """The partitions that have another leader or leader epoch than before, or are gone."""
    found: TopicPartitions = {}
    for topic_id, index in delta.changed_partitions():
        topic, before = image.topic_by_id(topic_id), delta.base.topic_by_id(topic_id)
        if topic is None:
            continue
        old, new = None if before is None else before.partitions.get(index), topic.partitions[index]
        if old is None or (old.leader, old.leader_epoch) != (new.leader, new.leader_epoch):
            found[TopicPartition(topic.name, index)] = None
    for deleted in delta.deleted_topics():
        found.update(dict.fromkeys(TopicPartition(deleted.name, index) for index in deleted.partitions))
    return found


def _txn_config(services: Services) -> TxnConfig:
    config = services.config
    return TxnConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        tombstone_batch_bytes_max=config.message_max_bytes,
        request_timeout_ms=config.request_timeout_ms,
    )
