"""Bugs of logs and of producer epochs. Each replaces one function (see `planted`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import odradek.coordinator.txn.end_txn
import odradek.storage.log.log
from odradek.broker.partition.background_jobs import BackgroundJobs
from odradek.broker.partition.partition import Partition
from odradek.protocol.batch import SEQUENCE_MAX
from odradek.storage.producers.entry import ProducerUpdate
from tests.sim.planted.planted import Planted

NEAR_WRAP: Final = 100
"""Sequences below the highest one for which the planted check accepts a lower sequence."""


def end_list_at_roll(original: Callable[..., Any]) -> Callable[..., Any]:
    """The aborted transactions of a read come from its segment alone: markers after a roll are not found."""

    def aborted_transactions(segments: Any, log_end: int, fetch_offset: int, result: Any) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = original(segments, log_end, fetch_offset, result)
        own: list[tuple[int, int]] = []
        if found:
            result.segment.txn_index.collect(fetch_offset, log_end, own)
        return [each for each in found if each in own]

    return aborted_transactions


def accept_any_sequence_near_wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    """Near the highest sequence, each lower sequence counts as the one after the wrap."""

    def check_sequence(self: ProducerUpdate, epoch: int, first_sequence: int) -> None:
        last = self.entry.last_sequence if self.entry.batches else self._current.last_sequence
        if not first_sequence < last > SEQUENCE_MAX - NEAR_WRAP:
            original(self, epoch, first_sequence)

    return check_sequence


def raise_epoch_twice(original: Callable[..., Any]) -> Callable[..., Any]:
    """An abort by the broker raises the epoch to fence the producer, and once more to end the transaction."""

    def to_prepared(txn: Any, state: Any, **arguments: Any) -> Any:
        prepared = original(txn, state, **arguments)
        if state.name == "PREPARE_ABORT" and prepared.producer_epoch == txn.producer_epoch + 1:
            return replace(prepared, producer_epoch=txn.producer_epoch + 2, last_producer_epoch=txn.producer_epoch)
        return prepared

    return to_prepared


def expire_by_record_timestamps(_original: Callable[..., Any]) -> Callable[..., Any]:
    """A producer expires by the timestamp of its last record, as in Kafka: its retry is appended twice."""

    async def expire(self: BackgroundJobs, partition: Partition) -> None:
        producers = partition.log.producers
        oldest_ms = self._clock.expiry_ms() - partition.log.config.producer_id_expiration_ms
        for producer_id, entry in list(producers.entries.items()):
            if entry.transaction_first_offset is None and entry.last_timestamp <= oldest_ms:
                producers._remove(producer_id)

    return expire


BUGS: Final = (
    Planted(
        "producers expire by timestamps of records",
        BackgroundJobs,
        "_expire_producers",
        expire_by_record_timestamps,
        ("I2", "I4"),
        brokers=3,
    ),
    Planted(
        "aborted transactions not found after a roll",
        odradek.storage.log.log,
        "aborted_transactions",
        end_list_at_roll,
        ("I5",),
    ),
    Planted(
        "any sequence accepted near the highest one",
        ProducerUpdate,
        "_check_sequence",
        accept_any_sequence_near_wrap,
        ("I13", "I4", "invariant producer-sequence"),
    ),
    Planted(
        "producer epoch raised twice by an abort",
        odradek.coordinator.txn.end_txn,
        "to_prepared",
        raise_epoch_twice,
        ("I14", "invariant txn-identity"),
    ),
)
