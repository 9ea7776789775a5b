"""DescribeTransactions of many ids: its work grows with their number, and no faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.apis import describe_transactions
from odradek.broker.security.authorizer import AllowAll
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tests.support.broker_context import context, image, services_of, topic
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.txn_rig import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cluster.authorizer import AclOperation, Principal, ResourceType

TOPICS = image([topic("__transaction_state", 3, [1])])


class Counted(str):
    """A name that counts how often one of its kind is compared with another object."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


async def test_many_ids_are_compared_a_number_of_times_linear_in_their_number() -> None:
    """One request may name as many as fit it: anything worse would hold up the whole broker."""
    rig = await CoordinatorRig().ready()
    many = [Counted(f"id-{number}") for number in range(2_000)]
    given = context(0, TOPICS, authorizer=DenyHalf())
    services_of(given).transactions = rig.coordinator
    given.api_key, given.client_id, given.now_ms = 65, "client-7", NOW_MS
    Counted.compared = 0
    answer = describe_transactions.handle(given, DescribeTransactionsRequest(transactional_ids=list(many)))
    assert not isinstance(answer, DescribeTransactionsResponse)
    response = await answer
    assert Counted.compared < 10 * len(many)
    denied = [
        each
        for each in response.transaction_states
        if each.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ]
    assert (len(response.transaction_states), len(denied)) == (len(many), len(many) // 2)


class DenyHalf(AllowAll):
    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        return [position % 2 == 0 for position, _ in enumerate(names)]
