"""DescribeDelegationToken with many tokens and owners: work is bounded per turn of the event loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.apis import describe_delegation_token
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.cluster.authorizer import AclOperation, Principal
from odradek.cluster.metadata.tokens import DelegationToken
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.protocol.security_protocol import SecurityProtocol
from tests.support.broker_context import Deny, context, image, response_of

COUNT = 3 * ELEMENTS_PER_PART


def token(owner: str) -> DelegationToken:
    return DelegationToken(owner, owner, ("User:scheduler",), 1, 3, 2)


def context_of(protocol: SecurityProtocol = SecurityProtocol.SASL_SSL, *denied: tuple[AclOperation, str]) -> Any:
    tokens = {f"token-{number}": token(f"User:u{number % 2}") for number in range(COUNT)}
    made = context(3, replace(image(), tokens=tokens), "delegation.token.secret.key=key", authorizer=Deny(*denied))
    session = made.session
    session.listener = replace(session.listener, security_protocol=protocol)
    session.principal = Principal("User", "u0")
    return made


async def described(context: Any, request: DescribeDelegationTokenRequest, largest: list[int]) -> Any:
    """Return the response. Append the maximum number of tokens that were described in one turn of the event loop."""
    since_turn = 0
    made = describe_delegation_token._described

    def counted(*arguments: Any) -> Any:
        nonlocal since_turn
        since_turn += 1
        largest.append(since_turn)
        return made(*arguments)

    async def other_work() -> None:
        nonlocal since_turn
        while True:
            since_turn = 0
            await asyncio.sleep(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(describe_delegation_token, "_described", counted)
        other = asyncio.create_task(other_work())
        try:
            return await response_of(describe_delegation_token.handle(context, request))
        finally:
            other.cancel()


@pytest.mark.parametrize("owners", [None, ["u0", "u1"], [f"u{number}" for number in range(COUNT)]])
async def test_many_tokens_are_described_in_parts(owners: list[str] | None) -> None:
    largest: list[int] = []
    named = None if owners is None else [DescribeDelegationTokenOwner("User", owner) for owner in owners]
    response = await described(context_of(), DescribeDelegationTokenRequest(named), largest)
    assert [one.token_id for one in response.tokens] == [f"token-{number}" for number in range(COUNT)]
    assert 0 < max(largest) <= ELEMENTS_PER_PART


async def test_only_visible_tokens_of_the_owners_are_described() -> None:
    other = [(AclOperation.DESCRIBE, f"token-{number}") for number in range(1, COUNT, 2)]
    handler_context = context_of(SecurityProtocol.SASL_SSL, *other, (AclOperation.DESCRIBE_TOKENS, "User:u1"))
    response = await described(handler_context, DescribeDelegationTokenRequest(None), [])
    assert {one.principal_name for one in response.tokens} == {"u0"}
    request = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "u1")])
    assert (await described(handler_context, request, [])).tokens == []
    assert (await described(handler_context, DescribeDelegationTokenRequest([]), [])).tokens == []


@pytest.mark.parametrize("protocol", [SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL])
async def test_client_without_authentication_is_refused(protocol: SecurityProtocol) -> None:
    handler_context = context_of(protocol)
    handler_context.session.principal = Principal("User", "ANONYMOUS")
    with pytest.raises(Refusal) as refused:
        describe_delegation_token.handle(handler_context, DescribeDelegationTokenRequest(None))
    assert refused.value.error is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_client_with_a_certificate_is_served() -> None:
    response = await described(context_of(SecurityProtocol.SSL), DescribeDelegationTokenRequest(None), [])
    assert len(response.tokens) == COUNT
