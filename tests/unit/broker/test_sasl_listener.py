"""Listeners with SASL on running nodes: what they serve before and after a login, and the end of sessions."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from typing import TYPE_CHECKING, Any

import jwt
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from odradek.broker.apis.sasl_authenticate import early
from odradek.broker.requests.session_login import VERSIONS_BEFORE_LOGIN_MAX
from odradek.cluster.authorizer import CLUSTER_NODE, Principal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.sasl.cluster_secret import ClusterSecret, parse_secret
from odradek.protocol.sasl.login import Login
from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.sasl.oauthbearer import OAuthBearerClient
from odradek.protocol.sasl.plain import PlainClient
from odradek.protocol.sasl.scram import ITERATIONS_MIN, SCRAM_MECHANISMS, ScramMechanism
from odradek.protocol.sasl.scram_client import ScramClient
from tests.support.node_cluster import CLUSTER_ID, NodeCluster
from tests.support.ports import free_ports
from tests.support.raw_client import ConnectionLost, RawClient
from tests.support.vote import vote_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from odradek.broker.requests.session import Session
    from odradek.broker.security.authentication import LoginCounts

USERS = 'user_alice="s3cret" user_cluster="n0 node"'
RECEIVE_BYTES_MAX = 100_000
"""The limit before a login on the listener. The node's own limit is the default, which is higher."""
JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required {USERS};"


def secret(seed: int = 5) -> ClusterSecret:
    return parse_secret(b"x" * 32, "secret", random.Random(seed).getrandbits)


class Rig:
    """Nodes whose only listener is for clients and nodes, with SASL_PLAINTEXT and PLAIN."""

    def __init__(self, nodes: NodeCluster) -> None:
        self.nodes = nodes

    @classmethod
    async def start(cls, directory: Path, count: int = 1, **settings: object) -> Rig:
        nodes = NodeCluster(directory, count)
        nodes.settings |= {
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": JAAS,
            "listener.name.clients.sasl.server.max.receive.size": RECEIVE_BYTES_MAX,
        } | {name.replace("_", "."): value for name, value in settings.items()}
        ports = free_ports(count)
        nodes.ports[:] = ports
        nodes.voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports, 1))
        made = {
            node_id: nodes.make(node_id, secret=secret(node_id), listeners=f"CLIENTS://127.0.0.1:{nodes.port(node_id)}")
            for node_id in nodes.ids
        }
        await nodes.start_made(made, ())
        return cls(nodes)

    async def connect(self) -> RawClient:
        return await self.nodes.client(1)

    @property
    def counts(self) -> LoginCounts:
        return self.nodes.nodes[1]._authentication.counts["CLIENTS"]

    def session(self, client: RawClient) -> Session:
        """Return the session of a client, by its client id."""
        sessions = [connection._session for connection in self.nodes.nodes[1].acceptor.connections]
        return next(one for one in sessions if one is not None and one.client_id == client.client_id)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    started = await Rig.start(tmp_path)
    try:
        yield started
    finally:
        await started.nodes.stop()


async def log_in(client: RawClient, login: Login) -> None:
    response: Any = await client.call(login.request, 1)
    while (request := login.received(response)) is not None:
        response = await client.call(request, 2)


async def log_in_as(client: RawClient, user: str = "alice", password: str = "s3cret") -> Login:
    login = Login(PlainClient(user, password))
    await log_in(client, login)
    return login


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[])


async def test_listener_serves_only_the_login_until_it_is_complete(rig: Rig) -> None:
    client = await rig.connect()
    announced = (await client.call(ApiVersionsRequest("test", "1"), 4)).api_keys
    keys = {row.api_key for row in announced}
    assert {MetadataRequest.API_KEY, SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY} <= keys
    with pytest.raises(ConnectionLost):
        await client.call(metadata(), 12)
    client = await rig.connect()
    await client.call(SaslHandshakeRequest("PLAIN"), 1)
    with pytest.raises(ConnectionLost):
        await client.call(metadata(), 12)
    client = await rig.connect()
    await log_in_as(client)
    assert (await client.call(metadata(), 12)).brokers
    assert rig.session(client).principal == Principal("User", "alice")
    assert {row.api_key for row in (await client.call(ApiVersionsRequest("test", "1"), 4)).api_keys} == keys
    with pytest.raises(ConnectionLost):
        await client.call(vote_request(CLUSTER_ID), 2)
    assert rig.counts.successful
    assert not rig.counts.failed


async def test_client_that_repeats_api_versions_before_its_login_is_disconnected(rig: Rig) -> None:
    client = await rig.connect()
    for _ in range(VERSIONS_BEFORE_LOGIN_MAX):
        assert (await client.call(ApiVersionsRequest("test", "1"), 4)).api_keys
    with pytest.raises(ConnectionLost):
        await client.call(ApiVersionsRequest("test", "1"), 4)
    client = await rig.connect()
    await log_in_as(client)
    for _ in range(VERSIONS_BEFORE_LOGIN_MAX + 1):
        assert (await client.call(ApiVersionsRequest("test", "1"), 4)).api_keys


async def test_failed_login_is_delayed_logged_and_closes_the_connection(tmp_path: Path) -> None:
    delay_s = 0.2
    rig = await Rig.start(tmp_path, connection_failed_authentication_delay_ms=int(delay_s * 1_000))
    try:
        with structlog.testing.capture_logs() as logs:
            client = await rig.connect()
            started_s = asyncio.get_running_loop().time()
            with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
                await log_in_as(client, password="wr0ng")
            assert asyncio.get_running_loop().time() - started_s >= delay_s
            with pytest.raises(ConnectionLost):
                await client.call(SaslHandshakeRequest("PLAIN"), 1)
        (row,) = [row for row in logs if row["event"] == "authentication failed"]
        assert row["client"].startswith("127.0.0.1:")
        assert not [row for row in logs if "wr0ng" in str(row)]
        assert rig.counts.failed == 1
    finally:
        await rig.nodes.stop()


async def test_requests_out_of_order_are_refused(rig: Rig) -> None:
    client = await rig.connect()
    response = await client.call(SaslAuthenticateRequest(b"\0alice\0s3cret"), 2)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    client = await rig.connect()
    response = await client.call(SaslHandshakeRequest("SCRAM-SHA-512"), 1)
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    client = await rig.connect()
    await client.call(SaslHandshakeRequest("PLAIN"), 1)
    response = await client.call(SaslHandshakeRequest("PLAIN"), 1)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(ConnectionLost):
        await client.call(ApiVersionsRequest("test", "1"), 4)
    assert rig.counts.failed == 3


async def test_expired_session_serves_only_a_repeated_login(tmp_path: Path) -> None:
    lifetime_ms = 3_600_000
    rig = await Rig.start(tmp_path, connections_max_reauth_ms=lifetime_ms)
    try:
        client, other = await rig.connect(), await rig.connect()
        other.client_id = "other"
        assert (await log_in_as(client)).session_lifetime_ms == lifetime_ms
        await log_in_as(other)
        for one in (client, other):
            assert (await one.call(metadata(), 12)).brokers
            rig.session(one).login.expires_ms = 0
        assert (await log_in_as(client)).session_lifetime_ms == lifetime_ms
        assert (await client.call(metadata(), 12)).brokers
        with pytest.raises(ConnectionLost):
            await other.call(metadata(), 12)
        with pytest.raises(AuthenticationFailed, match="Cannot change principals during re-authentication"):
            rig.session(client).login._repeated_ms = None
            await log_in_as(client, "cluster", "n0 node")
        counts = rig.counts
        assert (counts.successful_repeated, counts.failed_repeated, counts.expired) == (1, 1, 1)
    finally:
        await rig.nodes.stop()


async def test_client_with_the_name_of_nodes_is_no_node(rig: Rig) -> None:
    """Nodes use the user name `cluster`, and the name of the dialed node distinguishes their logins."""
    client = await rig.connect()
    await log_in_as(client, "cluster", "n0 node")
    assert (await client.call(metadata(), 12)).brokers
    assert rig.session(client).principal == Principal("User", "cluster")
    with pytest.raises(ConnectionLost):
        await client.call(vote_request(CLUSTER_ID), 2)
    client = await rig.connect()
    await log_in(client, secret(9).login(2, 1))
    assert (await client.call(vote_request(CLUSTER_ID), 2)).topics[0].partitions
    assert rig.session(client).principal == CLUSTER_NODE
    client = await rig.connect()
    with pytest.raises(AuthenticationFailed, match=r"'SCRAM-SHA-256' is not in sasl\.enabled\.mechanisms"):
        await client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
        response = await client.call(SaslAuthenticateRequest(b"n,,n=cluster,r=abc"), 2)
        raise AuthenticationFailed(response.error_message)


async def test_nodes_form_a_cluster_on_a_listener_with_sasl(tmp_path: Path) -> None:
    rig = await Rig.start(tmp_path, 2)
    try:
        client = await rig.connect()
        await log_in_as(client)
        assert len((await client.call(metadata(), 12)).brokers) == 2
        assert rig.counts.failed == 0
        assert rig.counts.successful > 1
    finally:
        await rig.nodes.stop()


async def test_large_frame_before_the_login_closes_the_connection(rig: Rig) -> None:
    size = RECEIVE_BYTES_MAX + 1
    for key in (MetadataRequest.API_KEY, ApiVersionsRequest.API_KEY, SaslAuthenticateRequest.API_KEY):
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.nodes.port(1))
        writer.write(struct.pack(">ihhih", size, key, 1, 1, -1))
        async with asyncio.timeout(30):
            assert await reader.read(1) == b""
        writer.close()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"n,,n=cluster,r=abc,t=1", True),
        (b"c=biws,r=abc,p=x", True),
        (b"n,,n=alice,r=abc", False),
        (b"n,,n=alice,r=abc,t=1", False),
        (b"n,,n=cluster,r=abc", False),
        (b"n,,n=cluster,r=t=1", False),
        (b"\0alice\0s3cret", True),
        (b"\0alice", False),
        (b"n,,\1auth=Bearer x\1\1", False),
    ],
)
def test_login_that_needs_the_users_of_the_cluster_waits_for_the_metadata(message: bytes, expected: bool) -> None:
    assert early(SaslAuthenticateRequest(message)) is expected


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda mechanism: mechanism.name)
async def test_client_logs_in_by_scram_after_its_credential_is_set(tmp_path: Path, mechanism: ScramMechanism) -> None:
    rig = await Rig.start(tmp_path, sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512")
    try:
        admin = await rig.connect()
        await log_in_as(admin)
        salt = b"a salt"
        salted = mechanism.salted(b"passw0rd", salt, ITERATIONS_MIN)
        new = ScramCredentialUpsertion("bob", mechanism.code, ITERATIONS_MIN, salt, salted)
        response = await admin.call(AlterUserScramCredentialsRequest(upsertions=[new]), 0)
        assert [(result.user, result.error_code) for result in response.results] == [("bob", ErrorCode.NONE)]
        described = (await admin.call(DescribeUserScramCredentialsRequest(), 0)).results
        assert [(one.user, one.credential_infos[0].mechanism) for one in described] == [("bob", mechanism.code)]

        client = await rig.connect()
        client.client_id = "bob"
        await log_in(client, Login(ScramClient.of_password(mechanism, "bob", "passw0rd", "a client nonce")))
        assert rig.session(client).principal == Principal("User", "bob")
        for user, password in (("bob", "another"), ("nobody", "passw0rd")):
            client = await rig.connect()
            with pytest.raises(AuthenticationFailed, match=f"due to invalid credentials .* {mechanism.name}$"):
                await log_in(client, Login(ScramClient.of_password(mechanism, user, password, "a client nonce")))

        removed = ScramCredentialDeletion("bob", mechanism.code)
        response = await admin.call(AlterUserScramCredentialsRequest(deletions=[removed]), 0)
        assert response.results[0].error_code == ErrorCode.NONE
        client = await rig.connect()
        with pytest.raises(AuthenticationFailed):
            await log_in(client, Login(ScramClient.of_password(mechanism, "bob", "passw0rd", "a client nonce")))
    finally:
        await rig.nodes.stop()


async def test_client_logs_in_by_a_token_until_its_expiry(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "one"}
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [public]}))
    rig = await Rig.start(
        tmp_path,
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_audience="odradek",
        sasl_oauthbearer_expected_issuer="https://issuer",
    )
    try:
        now_s = rig.nodes.nodes[1].env.clock.wall_ms() // 1_000
        claims = {"sub": "carol", "iss": "https://issuer", "aud": "odradek", "iat": now_s, "exp": now_s + 3_600}
        client = await rig.connect()
        login = Login(OAuthBearerClient(jwt.encode(claims, key, "ES256", {"kid": "one"})))
        await log_in(client, login)
        assert rig.session(client).principal == Principal("User", "carol")
        assert 0 < login.session_lifetime_ms <= 3_600_000
        for change in ({"aud": "another"}, {"exp": now_s - 60}):
            client = await rig.connect()
            token = jwt.encode(claims | change, key, "ES256", {"kid": "one"})
            with pytest.raises(AuthenticationFailed, match="invalid_token"):
                await log_in(client, Login(OAuthBearerClient(token)))
    finally:
        await rig.nodes.stop()
