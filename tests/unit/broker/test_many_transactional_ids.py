"""One request may name as many transactional ids as fit it: work that grows faster than their number would hold up the whole broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.apis import describe_transactions
from broker.ports import AclOperation, AllowAll
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tests.support.broker_context import context, image, topic
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.txn_rig import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.ports import Principal, ResourceType

IDS = 2_000
COMPARED_MAX = 10
"""How often each may be compared."""


class Counted(str):
    """A name that counts how often one of its kind is compared with another object."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


class DenyHalf(AllowAll):
    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        return [position % 2 == 0 for position, _ in enumerate(names)]


async def test_a_description_compares_each_a_few_times() -> None:
    rig = await CoordinatorRig().ready()
    given = context(0, image([topic("__transaction_state", 3, [1])]), authorizer=DenyHalf())
    given.services.transactions = rig.coordinator
    given.api_key, given.client_id, given.now_ms = describe_transactions.API.key, "client-7", NOW_MS
    request = DescribeTransactionsRequest(transactional_ids=[Counted(f"id-{number}") for number in range(IDS)])
    Counted.compared = 0
    answer = describe_transactions.handle(given, request)
    assert not isinstance(answer, DescribeTransactionsResponse)
    states = (await answer).transaction_states
    assert Counted.compared < COMPARED_MAX * IDS
    refused = [state.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED for state in states]
    assert (len(refused), sum(refused)) == (IDS, IDS // 2)
