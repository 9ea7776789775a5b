"""Fake group coordinator, and request contexts for the handlers of the group APIs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.protocol.errors import Refusal
from tests.support.broker_context import Deny, context, image, services_of, topic

if TYPE_CHECKING:
    from odradek.broker.contexts import BrokerRequestContext
    from odradek.broker.requests.api import AnyApi
    from odradek.cluster.authorizer import AclOperation

IMAGE = image([topic("t", 1, [1, 1]), topic("u", 2, [1])])
WITH_GROUPS = replace(IMAGE, features={**IMAGE.features, "group.version": 1})


class FakeGroups:
    """Fake group coordinator: call n completes with `results[n]`. Calls are recorded as `(name, *arguments)`."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.calls: list[tuple[Any, ...]] = []

    def fetched_bytes_max(self, _group_id: str) -> int:
        return 0

    def described_bytes_max(self, _group_id: str) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> asyncio.Future[Any]:
            self.calls.append((name, *arguments))
            future = asyncio.get_running_loop().create_future()
            result = self.results.pop(0)
            if isinstance(result, Refusal):
                future.set_exception(result)
            else:
                future.set_result(result)
            return future

        return call


def group_context(
    api: AnyApi, version: int, groups: FakeGroups | None = None, *denied: tuple[AclOperation, str]
) -> BrokerRequestContext:
    request_context = context(version, WITH_GROUPS, authorizer=Deny(*denied))
    request_context.api_key = api.key
    services = services_of(request_context)
    services.groups = groups or FakeGroups()
    return request_context
