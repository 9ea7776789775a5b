"""Planted bugs in two-phase commit (KIP-939): of the time-out, of the identity of the client, and of the markers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import odradek.coordinator.txn.end_txn
from odradek.coordinator.txn.commands import SendMarkers
from odradek.coordinator.txn.state import Transaction
from odradek.protocol.txn_state import TxnState
from tests.sim.planted.planted import Planted

SWEPT_AFTER_MS: Final = 300


def sweep_two_phase_transactions(_original: property) -> property:
    def deadline_ms(self: Transaction) -> int | None:
        if self.state is not TxnState.ONGOING:
            return None
        return self.start_ms + min(self.timeout_ms, SWEPT_AFTER_MS)

    return property(deadline_ms)


def keep_identity_of_client(original: Callable[..., Transaction]) -> Callable[..., Transaction]:
    def to_prepared(txn: Transaction, *args: Any, **options: Any) -> Transaction:
        prepared = original(txn, *args, **options)
        if not txn.is_kept:
            return prepared
        return replace(prepared, next_producer_id=txn.next_producer_id, next_producer_epoch=txn.next_producer_epoch)

    return to_prepared


def mark_as_client(original: Callable[..., SendMarkers]) -> Callable[..., SendMarkers]:
    def send_markers(txn: Transaction, coordinator_epoch: int) -> SendMarkers:
        send = original(txn, coordinator_epoch)
        if not txn.has_next_identity:
            return send
        marker = replace(send.marker, producer_id=txn.prev_producer_id, producer_epoch=max(0, txn.last_producer_epoch))
        return SendMarkers(send.transactional_id, marker)

    return send_markers


BUGS: Final = (
    Planted(
        "time-out aborts a transaction of a two-phase commit",
        Transaction,
        "deadline_ms",
        sweep_two_phase_transactions,
        ("I6 decision ignored",),
        owners=True,
    ),
    Planted(
        "identity of the client not raised at the end of a kept transaction",
        odradek.coordinator.txn.end_txn,
        "to_prepared",
        keep_identity_of_client,
        ("I14", "invariant txn-client-identity"),
        owners=True,
    ),
    Planted(
        "markers of a kept transaction with the identity of the client",
        odradek.coordinator.txn.end_txn,
        "send_markers",
        mark_as_client,
        ("I14",),
        owners=True,
    ),
)
