"""Delegation tokens on running nodes: their requests, logins with them, and the end of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import structlog

from odradek import client
from odradek.broker.process.clock import SystemClock
from odradek.broker.requests.session_login import LoginState
from odradek.broker.security.token_requests import FOR_ITSELF, NEITHER, OWNER_OR_RENEWER
from odradek.cluster.authorizer import Principal
from odradek.protocol.acls import AclOperation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from odradek.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.protocol.sasl.delegation_token import token_password
from odradek.protocol.sasl.login import Login
from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.sasl.scram import SCRAM_MECHANISMS, SCRAM_SHA_512, ScramMechanism
from odradek.protocol.sasl.scram_client import ScramClient
from tests.support.heartbeat_server import until
from tests.unit.broker.test_sasl_listener import JAAS, Rig, log_in, log_in_as

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.raw_client import RawClient

E = ErrorCode
RESPONSE_S = 20.0
"""Seconds for a response that must arrive."""
DAY_MS = 24 * 60 * 60 * 1_000
SETTINGS: dict[str, Any] = {
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener_name_clients_plain_sasl_jaas_config": JAAS.removesuffix(";") + ' user_bob="b0b" user_admin="adm1n";',
    "delegation_token_secret_key": "key of tokens",
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:admin",
}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    started = await Rig.start(tmp_path, **SETTINGS)
    try:
        yield started
    finally:
        await started.nodes.stop()


async def client_of(rig: Rig, user: str, password: str, node_id: int = 1) -> RawClient:
    client = await rig.nodes.client(node_id)
    await log_in_as(client, user, password)
    return client


async def token_login(rig: Rig, created: Any, mechanism: ScramMechanism = SCRAM_SHA_512, node_id: int = 1) -> RawClient:
    client = await rig.nodes.client(node_id)
    client.client_id = "token"
    password = token_password(bytes(created.hmac))
    await log_in(client, Login(ScramClient.of_password(mechanism, created.token_id, password, "nonce", by_token=True)))
    return client


async def create(client: RawClient, owner: str = "", *renewers: str, lifetime_ms: int = -1) -> Any:
    kind = "User" if owner else ""
    request = CreateDelegationTokenRequest(
        kind, owner, [CreatableRenewers("User", renewer) for renewer in renewers], lifetime_ms
    )
    return await client.call(request, 3)


async def listed(client: RawClient, *owners: str) -> list[str]:
    named = [DescribeDelegationTokenOwner("User", owner) for owner in owners] if owners else None
    response = await client.call(DescribeDelegationTokenRequest(named), 3)
    assert response.error_code == E.NONE
    return [token.token_id for token in response.tokens]


@pytest.mark.parametrize("nodes", [1, pytest.param(2, marks=pytest.mark.full)])
async def test_client_logs_in_by_token_on_each_node_as_its_owner(tmp_path: Path, nodes: int) -> None:
    rig = await Rig.start(tmp_path, nodes, **SETTINGS)
    try:
        await _log_in_on_each_node(rig)
    finally:
        await rig.nodes.stop()


async def _log_in_on_each_node(rig: Rig) -> None:
    alice = await client_of(rig, "alice", "s3cret")
    created = await create(alice, "", "bob")
    assert created.error_code == E.NONE
    assert (created.principal_name, created.token_requester_principal_name) == ("alice", "alice")
    assert created.expiry_timestamp_ms - created.issue_timestamp_ms == DAY_MS
    assert created.max_timestamp_ms - created.issue_timestamp_ms == 7 * DAY_MS
    assert len(created.hmac) == 64
    for node_id in rig.nodes.ids:
        await rig.nodes.until(node_id, lambda image: created.token_id in image.tokens)
        for mechanism in SCRAM_MECHANISMS.values():
            client = await token_login(rig, created, mechanism, node_id)
            assert (await client.call(MetadataRequest(topics=[]), 12)).brokers
    session = rig.session(client := await token_login(rig, created))
    assert session.principal == Principal("User", "alice")
    identity = session.login.identity
    assert identity is not None
    assert (identity.by_token, identity.expires_ms) == (True, created.expiry_timestamp_ms)
    assert session.login.state is LoginState.COMPLETE
    for request, version in (
        (CreateDelegationTokenRequest(), 3),
        (RenewDelegationTokenRequest(created.hmac, -1), 2),
        (ExpireDelegationTokenRequest(created.hmac, -1), 2),
        (DescribeDelegationTokenRequest(None), 3),
    ):
        response = await client.call(request, version)
        assert response.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, request


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_each_version_of_the_requests_creates_refuses_and_describes_tokens(rig: Rig, version: int) -> None:
    bob = await client_of(rig, "bob", "b0b")
    created = await bob.call(CreateDelegationTokenRequest(), version, timeout=RESPONSE_S)
    assert (created.error_code, created.principal_name) == (E.NONE, "bob")
    refused = await bob.call(
        CreateDelegationTokenRequest(renewers=[CreatableRenewers("Group", "x")]), version, timeout=RESPONSE_S
    )
    assert refused.error_code == E.INVALID_PRINCIPAL_TYPE
    requester = "bob" if version == 3 else ""
    assert {created.token_requester_principal_name, refused.token_requester_principal_name} == {requester}
    described = await bob.call(DescribeDelegationTokenRequest(None), version, timeout=RESPONSE_S)
    assert [token.token_requester_principal_name for token in described.tokens] == [requester]


async def test_session_ends_with_its_token_and_a_removed_token_is_unknown(rig: Rig) -> None:
    alice = await client_of(rig, "alice", "s3cret")
    created = await create(alice, lifetime_ms=60_000)
    login = Login(
        ScramClient.of_password(
            SCRAM_SHA_512, created.token_id, token_password(bytes(created.hmac)), "nonce", by_token=True
        )
    )
    await log_in(await rig.connect(), login)
    assert 0 < login.session_lifetime_ms <= 60_000
    renewed = await alice.call(RenewDelegationTokenRequest(created.hmac, 10_000), 2)
    assert renewed.error_code == E.NONE
    await token_login(rig, created)
    expired = await alice.call(ExpireDelegationTokenRequest(created.hmac, 0), 2)
    assert expired.error_code == E.NONE
    await until(lambda: SystemClock().wall_ms() > expired.expiry_timestamp_ms)  # a token is valid at this time
    await _refused(rig, created)
    assert await listed(alice) == [created.token_id]
    removed = await alice.call(ExpireDelegationTokenRequest(created.hmac, -1), 2)
    assert removed.error_code == E.NONE
    assert (await alice.call(RenewDelegationTokenRequest(created.hmac, -1), 2)).error_code == (
        E.DELEGATION_TOKEN_NOT_FOUND
    )
    await _refused(rig, created)
    assert await listed(alice) == []
    created.hmac = b"x" * 64
    await _refused(rig, created)


async def _refused(rig: Rig, created: Any) -> None:
    with pytest.raises(AuthenticationFailed, match=r"due to invalid credentials .* SCRAM-SHA-512$"):
        await token_login(rig, created)


async def test_tokens_of_others_need_permissions(rig: Rig) -> None:
    admin = await client_of(rig, "admin", "adm1n")
    alice = await client_of(rig, "alice", "s3cret")
    bob = await client_of(rig, "bob", "b0b")
    refused = await create(alice, "bob")
    assert (refused.error_code, refused.principal_name, bytes(refused.hmac)) == (
        E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "bob",
        b"",
    )
    delegated = await create(admin, "alice", "bob")
    assert (delegated.principal_name, delegated.token_requester_principal_name) == ("alice", "admin")
    own = await create(alice)
    foreign = await create(admin)
    both = [delegated.token_id, own.token_id]
    assert await listed(bob) == [delegated.token_id]
    assert await listed(alice) == both
    assert await listed(alice, "bob") == [delegated.token_id]
    assert await listed(alice, "carol") == []
    assert await listed(admin) == [*both, foreign.token_id]
    assert await listed(admin, "alice") == both
    assert (await bob.call(RenewDelegationTokenRequest(delegated.hmac, -1), 2)).error_code == E.NONE
    for request in (RenewDelegationTokenRequest(own.hmac, -1), ExpireDelegationTokenRequest(own.hmac, -1)):
        assert (await admin.call(request, 2)).error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH
    token = (await bob.call(DescribeDelegationTokenRequest(None), 3)).tokens[0]
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "admin")
    assert bytes(token.hmac) == bytes(delegated.hmac)
    assert [renewer.principal_name for renewer in token.renewers] == ["bob"]


async def test_client_without_rights_receives_equal_responses_for_a_token_and_for_an_unknown_hmac(rig: Rig) -> None:
    """A valid token, an expired one, and none."""
    alice, bob = await client_of(rig, "alice", "s3cret"), await client_of(rig, "bob", "b0b")
    valid, expired = await create(alice), await create(alice)
    ended = (await alice.call(ExpireDelegationTokenRequest(expired.hmac, 0), 2)).expiry_timestamp_ms
    await until(lambda: SystemClock().wall_ms() > ended)
    for request, version in ((RenewDelegationTokenRequest, 2), (ExpireDelegationTokenRequest, 2)):
        for period_ms in (-1, 0, 1_000):
            responses = [
                await bob.call(request(hmac, period_ms), version) for hmac in (valid.hmac, expired.hmac, b"unknown")
            ]
            assert responses == [responses[2]] * 3
            assert responses[2].error_code == E.DELEGATION_TOKEN_NOT_FOUND
    assert await listed(bob, "alice") == await listed(bob, "nobody") == []
    created = [await create(bob, owner) for owner in ("alice", "nobody")]
    assert {response.error_code for response in created} == {E.DELEGATION_TOKEN_AUTHORIZATION_FAILED}
    assert (await alice.call(RenewDelegationTokenRequest(expired.hmac, -1), 2)).error_code == E.DELEGATION_TOKEN_EXPIRED


async def test_acls_permit_to_create_and_to_list_tokens_of_another_user(rig: Rig) -> None:
    admin = await client_of(rig, "admin", "adm1n")
    alice = await client_of(rig, "alice", "s3cret")
    bob = await client_of(rig, "bob", "b0b")
    own = await create(alice)
    one, literal, allow = (await create(admin, "admin")).token_id, PatternType.LITERAL, Permission.ALLOW
    acls = [
        AclCreation(ResourceType.USER, "User:bob", literal, "User:alice", "*", AclOperation.CREATE_TOKENS, allow),
        AclCreation(ResourceType.USER, "User:alice", literal, "User:bob", "*", AclOperation.DESCRIBE_TOKENS, allow),
        AclCreation(ResourceType.DELEGATION_TOKEN, one, literal, "User:bob", "*", AclOperation.DESCRIBE, allow),
    ]
    response = await admin.call(CreateAclsRequest(acls), 3)
    assert [result.error_code for result in response.results] == [E.NONE] * 3
    made = await create(alice, "bob")
    assert (made.error_code, made.principal_name) == (E.NONE, "bob")
    assert await listed(bob) == [own.token_id, one, made.token_id]
    assert await listed(alice) == [own.token_id, made.token_id]
    assert await listed(alice, "bob") == [made.token_id]
    refused = await alice.call(RenewDelegationTokenRequest(made.hmac, -1), 2)
    assert refused.error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH


async def test_audit_log_has_changes_and_refusals_that_no_acl_decides(rig: Rig) -> None:
    alice, bob = await client_of(rig, "alice", "s3cret"), await client_of(rig, "bob", "b0b")
    with structlog.testing.capture_logs() as logs:
        created = await create(alice)
        await alice.call(RenewDelegationTokenRequest(created.hmac, -1), 2)
        await bob.call(ExpireDelegationTokenRequest(created.hmac, -1), 2)
        await alice.call(ExpireDelegationTokenRequest(created.hmac, -1), 2)
        await alice.call(ExpireDelegationTokenRequest(created.hmac, -1), 2)
    events = [
        (log["event"], log["principal"], log["api"], log["operation"], log["names"], log["rule"])
        for log in logs
        if log.get("logger") == "odradek.audit"
    ]
    renew, expire, token = "RenewDelegationToken", "ExpireDelegationToken", [created.token_id]
    assert events == [
        ("change allowed", "User:alice", "CreateDelegationToken", "CREATE_TOKENS", ["User:alice"], FOR_ITSELF),
        ("change allowed", "User:alice", renew, "ALTER", token, OWNER_OR_RENEWER),
        ("operation denied", "User:bob", expire, "ALTER", token, NEITHER),
        ("change allowed", "User:alice", expire, "ALTER", token, OWNER_OR_RENEWER),
    ]
    assert token_password(bytes(created.hmac)) not in str(logs)


async def test_client_library_creates_renews_expires_and_uses_tokens(rig: Rig) -> None:
    def cluster(mechanism: str, module: str) -> client.Cluster:
        security = client.Security.of(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f"org.apache.kafka.common.security.{module};",
            }
        )
        retry = client.RetryPolicy(deadline_s=0)
        return client.Cluster(f"127.0.0.1:{rig.nodes.port(1)}", client.Settings(security=security, retry=retry))

    async with cluster("PLAIN", 'plain.PlainLoginModule required username="admin" password="adm1n"') as admin:
        token = await client.create_token(admin, owner="alice", renewers=["User:admin"], max_lifetime_ms=60_000)
        assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:admin", ["User:admin"])
        assert await client.describe_tokens(admin, ["alice"]) == [token]
        assert await client.renew_token(admin, token.token_id) == token.max_ms
        module = f'scram.ScramLoginModule required username="{token.token_id}" password="{token.hmac}" tokenauth="true"'
        async with cluster("SCRAM-SHA-256", module) as user:
            with pytest.raises(client.Refused, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
                await client.create_token(user)
        assert await client.expire_token(admin, token.token_id, period_ms=50_000) < token.max_ms
        await client.expire_token(admin, token.token_id)
        with pytest.raises(client.InvalidArgument, match=f"token {token.token_id}: it does not exist"):
            await client.renew_token(admin, token.token_id)
        assert token.hmac not in repr(token)


async def test_cluster_without_a_key_of_tokens_refuses_requests(tmp_path: Path) -> None:
    rig = await Rig.start(tmp_path)
    requests = [
        (CreateDelegationTokenRequest(), 3),
        (RenewDelegationTokenRequest(b"x", -1), 2),
        (ExpireDelegationTokenRequest(b"x", -1), 2),
        (DescribeDelegationTokenRequest(None), 3),
    ]
    try:
        alice = await client_of(rig, "alice", "s3cret")
        for request, version in requests:
            response: Any = await alice.call(request, version)
            assert response.error_code == E.DELEGATION_TOKEN_AUTH_DISABLED
    finally:
        await rig.nodes.stop()
