"""DescribeTransactions with many transactional ids takes linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.apis import describe_transactions
from odradek.broker.security.authorizer import AllowAll
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.support.broker_context import context, image, response_of, services_of, topic
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.txn_rig import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cluster.authorizer import AclOperation, Principal, ResourceType

TOPICS = image([topic("__transaction_state", 3, [1])])


class Counted(str):
    """String that counts comparisons between instances and other objects."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


async def test_comparisons_are_linear_in_the_number_of_transactional_ids() -> None:
    """One request can name thousands of ids. Quadratic work would block the event loop of the broker."""
    rig = await CoordinatorRig().ready()
    names = [Counted(f"id-{number}") for number in range(2_000)]
    request_context = context(0, TOPICS, authorizer=DenyHalf())
    services_of(request_context).transactions = rig.coordinator
    request_context.api_key, request_context.client_id, request_context.now_ms = 65, "client-7", NOW_MS
    Counted.compared = 0
    pending = describe_transactions.handle(request_context, DescribeTransactionsRequest(transactional_ids=list(names)))
    response = await response_of(pending)
    assert Counted.compared < 10 * len(names)
    denied = [
        state
        for state in response.transaction_states
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ]
    assert (len(response.transaction_states), len(denied)) == (len(names), len(names) // 2)


class DenyHalf(AllowAll):
    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        return [position % 2 == 0 for position, _ in enumerate(names)]
