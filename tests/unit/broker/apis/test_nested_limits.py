"""Limits on arrays that are handled in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.apis import alter_client_quotas, leave_group, offset_delete, update_features
from odradek.broker.apis.alter_client_quotas import COMPONENTS_MAX, OPERATIONS_MAX
from odradek.broker.apis.update_features import UPDATES_MAX
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.broker_context import context, image

if TYPE_CHECKING:
    from odradek.broker.requests.api import AnyApi


async def test_update_of_too_many_features_is_refused() -> None:
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("f")] * (UPDATES_MAX + 1))
    with pytest.raises(Refusal, match="at most 100 features") as refused:
        await update_features.handle(context(2, image([])), request)
    assert refused.value.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("components", "operations"), [(COMPONENTS_MAX + 1, 1), (1, OPERATIONS_MAX + 1)])
async def test_quota_entity_with_too_many_parts_is_refused(components: int, operations: int) -> None:
    entry = RequestEntryData([RequestEntityData("user", "u")] * components, [OpData("k", 1.0)] * operations)
    request = AlterClientQuotasRequest([RequestEntryData(), entry])
    with pytest.raises(Refusal, match="at most 10 components and 100 operations") as refused:
        await alter_client_quotas.handle(context(1, image([])), request)
    assert refused.value.error is ErrorCode.INVALID_REQUEST
    response = alter_client_quotas.refuse(context(1, image([])), request, ErrorCode.INVALID_REQUEST, None)
    assert [len(result.entity) for result in response.entries] == [0, min(components, COMPONENTS_MAX)]


@pytest.mark.parametrize(
    ("api", "version", "request_"),
    [
        (leave_group.API, 3, LeaveGroupRequest("g", members=[MemberIdentity("m")] * 5_000)),
        (
            offset_delete.API,
            0,
            OffsetDeleteRequest(
                "g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(n) for n in range(5_000)])]
            ),
        ),
    ],
)
def test_request_to_a_group_is_divided(api: AnyApi, version: int, request_: Any) -> None:
    splitting = api.splitting(version)
    assert splitting is not None
    assert splitting.is_large(request_)
    assert len(list(splitting.parts(request_))) >= 5


def test_leave_group_of_one_member_is_not_divided() -> None:
    assert leave_group.API.splitting(2) is None
