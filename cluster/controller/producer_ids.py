"""Blocks of producer ids (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.brokers.active import check_broker_epoch
from odradek.cluster.controller.messages.brokers import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.records import ProducerIdsRecord
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from odradek.cluster.controller.commands import AllocateProducerIds

PRODUCER_ID_MAX: Final = (1 << 63) - 1


def allocate_producer_ids(state: ControllerState, command: AllocateProducerIds) -> ControllerResult[ProducerIdBlock]:
    """Allocate the next block. The record has the first id after it, so no id is allocated twice."""
    check_broker_epoch(state, command.broker_id, command.broker_epoch)
    first = state.image.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise Refusal(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = ProducerIdsRecord(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
    )
    return ControllerResult(ProducerIdBlock(first), (record,))
