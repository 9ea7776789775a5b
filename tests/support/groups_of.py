"""Handlers of groups' APIs beside a coordinator that says what it is told to say."""

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


class GroupsOf:
    """Answers every question with what it was given; remembers the questions."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any, **options: Any) -> asyncio.Future[Any]:
            self.asked.append((name, *arguments))
            future = asyncio.get_running_loop().create_future()
            told = self.answers.pop(0)
            if isinstance(told, Refusal):
                future.set_exception(told)
            else:
                future.set_result(told)
            return future

        return ask


def asking(
    api: AnyApi, version: int, groups: GroupsOf | None = None, *denied: tuple[AclOperation, str]
) -> BrokerRequestContext:
    made = context(version, WITH_GROUPS, authorizer=Deny(*denied))
    made.api_key = api.key
    services = services_of(made)
    services.groups = groups or GroupsOf()
    return made
