"""Assemble the transaction coordinator: its shards, its access to the other coordinators, and the writer of markers."""

from collections.abc import Callable
from typing import Final

from odradek.broker.config.properties import Config
from odradek.broker.coordinators.hanging import HangingTransactions, TransactionSearch
from odradek.broker.coordinators.image_ports import CoordinatorTopic, ImageFeatures, ImageLeaders, ProducerIdBlocks
from odradek.broker.coordinators.marker_sender import MarkerSender, RemoteMarkerSender
from odradek.broker.coordinators.marker_writer import COMMIT_MS_MAX, MarkerWriter
from odradek.broker.coordinators.remote_txn_coordinator import RESPONSE_MS_MAX, Coordinators
from odradek.broker.coordinators.shard_loader import STANDBY_INTERVAL_MS, CoordinatorShards, leads_open
from odradek.broker.coordinators.txn_verification import TransactionVerifier
from odradek.broker.partition.registry import Partitions
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.broker.quorum.peers import Peers
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.coordinator.txn.ports import TopicPartition, TxnConfig
from odradek.coordinator.txn.producer_ids import ProducerIdPool
from odradek.coordinator.txn.service import TransactionCoordinator
from odradek.coordinator.txn.state import Partitions as TopicPartitions
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.runtime.clock import Clock
from odradek.runtime.repeated_tasks import repeat
from odradek.runtime.tasks import Spawn

MARKER_RESPONSE_MS: Final = 5 * COMMIT_MS_MAX
"""Maximum wait for the response to WriteTxnMarkers, in milliseconds. A leader responds within COMMIT_MS_MAX; the
factor 5 allows for a busy leader."""


class Transactions:
    """The transaction coordinator of this broker, with its verifier and its marker writer."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        spawn: Spawn,
        *,
        metadata: MetadataCache,
        partitions: Partitions,
        peers: Peers,
        controller: ControllerClient,
        broker_epoch: Callable[[], int],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        """`broker_epoch` returns the epoch of this broker's registration.

        `on_failure` receives a description and the exception of bugs and failed disks.
        """
        topic = CoordinatorTopic(TRANSACTION_STATE, metadata, config.transaction_state_log_num_partitions)
        blocks = ProducerIdBlocks(controller, config.node_id, broker_epoch)
        producer_ids = ProducerIdPool(blocks.allocate, spawn)
        self.markers = MarkerWriter(partitions, clock, config.request_timeout_ms, topic.leader_epoch_max)
        remote = RemoteMarkerSender(peers, MARKER_RESPONSE_MS)
        self.coordinator = TransactionCoordinator(
            clock=clock,
            config=_txn_config(config),
            producer_ids=producer_ids,
            leaders=ImageLeaders(metadata),
            sender=MarkerSender(config.node_id, self.markers, remote),
            features=ImageFeatures(metadata),
            shard_count=topic.partitions,
            is_assigned=lambda shard: leads_open(partitions, topic, config.node_id, shard),
            spawn=spawn,
            on_failure=on_failure,
        )
        self._coordinators = Coordinators(
            config.node_id,
            self.coordinator,
            peers,
            topic.leaders,
            timeout_ms=config.request_timeout_ms,
        )
        search = TransactionSearch(
            config.node_id,
            self.coordinator,
            peers,
            topic.leaders,
            timeout_ms=min(config.request_timeout_ms, RESPONSE_MS_MAX),
        )
        self.hanging = HangingTransactions(partitions, self.markers, search)
        self.verifier = TransactionVerifier(self._coordinators, config)
        load_bytes = config.transaction_state_log_load_buffer_size
        shards = CoordinatorShards(TRANSACTION_STATE, self.coordinator, partitions, spawn, clock, load_bytes=load_bytes)
        partitions.listen(TRANSACTION_STATE, shards)
        name = "update standby caches of transactions"
        spawn(repeat(shards.update_standby, STANDBY_INTERVAL_MS, STANDBY_INTERVAL_MS, spawn, name), name)
        producer_ids.prefetch()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Pass changed leaders to the coordinator, which sends markers again.

        Call it after `Partitions.on_metadata`.
        """
        changed = changed_leaders(delta, image)
        if changed:
            self.coordinator.leaders_changed(changed)
            if any(partition.topic == TRANSACTION_STATE for partition in changed):
                self._coordinators.leaders_changed()


def changed_leaders(delta: MetadataDelta, image: MetadataImage) -> TopicPartitions:
    """Return the partitions with a new leader or leader epoch, and the deleted partitions."""
    changed: TopicPartitions = {}
    for topic_id, index in delta.changed_partitions():
        topic, before = image.topic_by_id(topic_id), delta.base.topic_by_id(topic_id)
        if topic is None:
            continue
        old, new = None if before is None else before.partitions.get(index), topic.partitions[index]
        if old is None or (old.leader, old.leader_epoch) != (new.leader, new.leader_epoch):
            changed[TopicPartition(topic.name, index)] = None
    for deleted in delta.deleted_topics():
        changed.update(dict.fromkeys(TopicPartition(deleted.name, index) for index in deleted.partitions))
    return changed


def _txn_config(config: Config) -> TxnConfig:
    return TxnConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        two_phase_commit=config.transaction_two_phase_commit_enable,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        tombstone_batch_bytes_max=config.message_max_bytes,
        request_timeout_ms=config.request_timeout_ms,
    )
