"""Select expired transactional ids, and group their tombstones into batches (transactional.id.expiration.ms)."""

from collections.abc import Iterable, Iterator

from odradek.coordinator.txn.commands import DecisionContext, ExpireId, retry_after
from odradek.coordinator.txn.records import encode_key, tombstone
from odradek.coordinator.txn.state import Transaction
from odradek.coordinator.txn.transitions import Event, look_up
from odradek.protocol.batch import HEADER_BYTES
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.txn_state import TxnState
from odradek.runtime.machine import To
from odradek.runtime.shard import Decision, RetryAfter

TOMBSTONE_OVERHEAD_BYTES = 21
"""Maximum bytes of a tombstone record in addition to its key: the largest varints of all its fields."""


def is_expired(txn: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Return True if the id has no open transaction and was not used for `expiration_ms`."""
    if txn.update_ms > now_ms - expiration_ms:
        return False
    return isinstance(look_up(txn.state, Event.EXPIRE), To)


def decide_removal(command: ExpireId, context: DecisionContext) -> Decision[None] | RetryAfter:
    """Decide the removal of an id by an operator. The producer of the id must initialize it again, as after expiration.

    Raises:
        Refusal: TRANSACTIONAL_ID_NOT_FOUND; PRODUCER_FENCED if another producer has initialized the id meanwhile;
            INVALID_TXN_STATE if its transaction is open or prepared.
    """
    txn = context.txn
    if txn is None or txn.state is TxnState.DEAD:
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    if context.pending:
        return retry_after(command.transactional_id)
    if txn.own_identity != command.expected:
        raise Refusal(ErrorCode.PRODUCER_FENCED)
    if not isinstance(look_up(txn.state, Event.EXPIRE), To):
        raise Refusal(ErrorCode.INVALID_TXN_STATE)
    return Decision(None, records=(tombstone(txn.transactional_id),), keys=(txn.transactional_id,))


def batches(transactional_ids: Iterable[str], bytes_max: int) -> Iterator[tuple[str, ...]]:
    """Group the ids so that the tombstones of a group fit one batch of `bytes_max` bytes (KAFKA-13099)."""
    group: list[str] = []
    size = HEADER_BYTES
    for transactional_id in transactional_ids:
        needed = TOMBSTONE_OVERHEAD_BYTES + len(encode_key(transactional_id))
        if group and size + needed > bytes_max:
            yield tuple(group)
            group, size = [], HEADER_BYTES
        group.append(transactional_id)
        size += needed
    if group:
        yield tuple(group)
