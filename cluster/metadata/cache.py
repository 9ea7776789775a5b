"""The committed metadata of a broker, and the subscribers of its changes."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING, TypeAlias

from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek.cluster.metadata.records import decode_record
from odradek.cluster.metadata.snapshot import delta_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from odradek.cluster.metadata.records import MetadataRecord
    from odradek.cluster.raft.batches import LogBatch
    from odradek.cluster.raft.messages import EpochEnd

MetadataSubscriber: TypeAlias = "Callable[[MetadataDelta, MetadataImage], None]"
SnapshotPreparer: TypeAlias = "Callable[[int], Callable[[MetadataDelta, MetadataRecord], None]]"
"""Receives the offset of a snapshot, and returns a function that receives each record of it after its replay."""
Condition: TypeAlias = "Callable[[MetadataImage], bool]"


class SnapshotLoad:
    """Build the image of one snapshot, as a SnapshotVisitor.

    The published image stays unchanged until `done`.
    """

    def __init__(
        self, snapshot: EpochEnd, preparers: Iterable[SnapshotPreparer], on_loaded: Callable[[MetadataDelta], None]
    ) -> None:
        self._offset = snapshot.end_offset - 1
        self._epoch = snapshot.epoch
        self._on_loaded = on_loaded
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._prepare = [preparer(self._offset) for preparer in preparers]

    def take(self, batches: Sequence[LogBatch]) -> None:
        """Replay batches of the snapshot. Raise UnsupportedMetadata, InconsistentMetadata or Malformed."""
        for batch in batches:
            for _, value in batch.records:
                record = decode_record(value)
                self._delta.replay(self._offset, self._epoch, record)
                for prepare in self._prepare:
                    prepare(self._delta, record)

    def done(self) -> None:
        """Publish the image."""
        self._delta.skip_to(self._offset, self._epoch)
        self._on_loaded(self._delta)


class MetadataCache:
    """The image of all committed records. `image` is replaced, never changed: read it once per request.

    Subscribers are called in the order of their subscription with (delta, new image). `delta.base` is the previous
    image. A metadata transaction (KIP-868) becomes visible as a whole at its end.
    """

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._subscribers: list[MetadataSubscriber] = []
        self._waiting: list[tuple[Condition, Future[None]]] = []
        self._preparers: list[SnapshotPreparer] = []

    def prepare_snapshots(self, preparer: SnapshotPreparer) -> None:
        """Call `preparer` before each later snapshot, for work that takes too long in the callback of its image."""
        self._preparers.append(preparer)

    def subscribe(self, subscriber: MetadataSubscriber) -> None:
        """Call `subscriber` after each later change. It must not raise: other subscribers depend on the change, too."""
        self._subscribers.append(subscriber)

    def subscribe_from_start(self, subscriber: MetadataSubscriber) -> None:
        """Call `subscriber` with the current image, as a delta from the empty image, and after each later change."""
        subscriber(MetadataDelta.from_nothing(self.image), self.image)
        self.subscribe(subscriber)

    def unsubscribe(self, subscriber: MetadataSubscriber) -> None:
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    async def wait_until(self, condition: Condition) -> None:
        """Wait until `condition` holds for a published image. It must not raise, and is called for each image."""
        if not condition(self.image):
            future: Future[None] = get_running_loop().create_future()
            self._waiting.append((condition, future))
            await future

    def on_committed(self, batches: Sequence[LogBatch]) -> None:
        """Replay committed batches that are not prepared, in the order of the log, and publish the resulting image.

        Raise UnsupportedMetadata, InconsistentMetadata or Malformed: the node must stop, because it cannot read its
        metadata.
        """
        delta = self._delta
        self.prepare(batches)
        if delta.in_transaction or delta.is_empty:
            return
        self._publish(delta, delta.build())

    def prepare(self, batches: Sequence[LogBatch]) -> None:
        """Replay committed batches above the published image. `on_committed` of the same batches publishes them."""
        delta = self._delta
        for batch in batches:
            if batch.last_offset <= delta.offset:
                continue
            for index, (_, value) in enumerate(batch.records):
                delta.replay(batch.base_offset + index, batch.epoch, decode_record(value))
            delta.skip_to(batch.last_offset, batch.epoch)

    def on_snapshot(self, snapshot: EpochEnd) -> SnapshotLoad:
        """Return the visitor of a snapshot that replaces all records so far."""
        return SnapshotLoad(snapshot, self._preparers, self._loaded)

    def _loaded(self, delta: MetadataDelta) -> None:
        image = delta.build()
        self._publish(delta if self.image is EMPTY_IMAGE else delta_between(self.image, image), image)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        self._delta = MetadataDelta(image)
        for subscriber in tuple(self._subscribers):
            subscriber(delta, image)
        waiting, self._waiting = self._waiting, []
        for condition, future in waiting:
            if future.done():  # the caller of `wait_until` was cancelled
                continue
            if condition(image):
                future.set_result(None)
            else:
                self._waiting.append((condition, future))
