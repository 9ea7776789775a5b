"""The committed metadata of a broker, and who wants to hear of it."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING, TypeAlias

from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek.cluster.metadata.records import decode_record
from odradek.cluster.metadata.snapshot import delta_between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.cluster.raft.batches import LogBatch
    from odradek.cluster.raft.messages import EpochEnd

MetadataSubscriber: TypeAlias = "Callable[[MetadataDelta, MetadataImage], None]"


class SnapshotLoad:
    """Builds the image of one snapshot, apart from the one that is published meanwhile. A SnapshotVisitor of the driver's."""

    def __init__(self, snapshot: EpochEnd, on_loaded: Callable[[MetadataImage], None]) -> None:
        self._offset = snapshot.end_offset - 1
        self._epoch = snapshot.epoch
        self._on_loaded = on_loaded
        self._delta = MetadataDelta(EMPTY_IMAGE)

    def take(self, batches: Sequence[LogBatch]) -> None:
        """Raises NotUnderstood, InconsistentMetadata or Malformed."""
        for batch in batches:
            for _, value in batch.records:
                self._delta.replay(self._offset, self._epoch, decode_record(value))

    def done(self) -> None:
        self._delta.skip_to(self._offset, self._epoch)
        self._on_loaded(self._delta.build())


class MetadataCache:
    """Holds the image of everything committed. `image` is replaced, never changed: take it once per request.

    Subscribers are called in order of subscription with (delta, new image); `delta.base` is the image before.
    A metadata transaction (KIP-868) becomes visible as a whole, with its end.
    """

    def __init__(self) -> None:
        """Empty until the first batch."""
        self.image = EMPTY_IMAGE
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._subscribers: list[MetadataSubscriber] = []
        self._waiting: list[tuple[int, Future[None]]] = []

    def subscribe(self, subscriber: MetadataSubscriber) -> None:
        """From the next change on. A subscriber must not raise: the log goes on for all the others."""
        self._subscribers.append(subscriber)

    def subscribe_from_start(self, subscriber: MetadataSubscriber) -> None:
        """As `subscribe`; `subscriber` first hears of everything that there is already, in one delta above nothing."""
        subscriber(MetadataDelta.from_nothing(self.image), self.image)
        self.subscribe(subscriber)

    def unsubscribe(self, subscriber: MetadataSubscriber) -> None:
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    async def wait_for(self, offset: int) -> MetadataImage:
        """The first image that contains `offset`."""
        if self.image.offset < offset:
            future: Future[None] = get_running_loop().create_future()
            self._waiting.append((offset, future))
            await future
        return self.image

    def on_committed(self, batches: Sequence[LogBatch]) -> None:
        """Take committed batches, in the order of the log.

        Raises NotUnderstood, InconsistentMetadata or Malformed: the node cannot go on with metadata that it cannot read.
        """
        delta = self._delta
        for batch in batches:
            for index, (_, value) in enumerate(batch.records):
                delta.replay(batch.base_offset + index, batch.epoch, decode_record(value))
            delta.skip_to(batch.last_offset, batch.epoch)
        if delta.in_transaction or delta.is_empty:
            return
        self._publish(delta, delta.build())

    def on_snapshot(self, snapshot: EpochEnd) -> SnapshotLoad:
        """A snapshot takes the place of everything so far."""
        return SnapshotLoad(snapshot, self._loaded)

    def _loaded(self, image: MetadataImage) -> None:
        self._publish(delta_between(self.image, image), image)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        self._delta = MetadataDelta(image)
        for subscriber in tuple(self._subscribers):
            subscriber(delta, image)
        due = [future for offset, future in self._waiting if offset <= self.image.offset]
        self._waiting = [(offset, future) for offset, future in self._waiting if offset > self.image.offset]
        for future in due:
            if not future.done():
                future.set_result(None)
