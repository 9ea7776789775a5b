"""Logins of connections: their order, their refusals, and their renewal before the session expires."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.client import AuthenticationFailed, Cluster, ConnectionLost, Security, Settings
from odradek.client.network.connection import Connection
from odradek.client.network.session import RENEWAL_MAX, RENEWAL_MIN
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.fake_kafka import HOST, PORT_BASE, FakeKafka, Fault, run

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

ADDRESS = (HOST, PORT_BASE + 1)
PASSWORD = "alice-secret"
SECURITY = Security.of(
    {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="alice" password="{PASSWORD}";',
    }
)
SETTINGS = Settings(security=SECURITY)
LIFETIME_MS = 100_000


def accepted(lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_message=None, session_lifetime_ms=lifetime_ms)


def refused(message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def handshakes(kafka: FakeKafka, *results: SaslAuthenticateResponse) -> None:
    for result in results:
        kafka.script(SaslHandshakeRequest, SaslHandshakeResponse(mechanisms=["PLAIN"]))
        kafka.script(SaslAuthenticateRequest, result)


def names(kafka: FakeKafka) -> list[str]:
    return [received.request.NAME.removesuffix("Request") for received in kafka.received]


def test_login_follows_the_version_agreement_and_precedes_all_else(kafka: FakeKafka) -> None:
    handshakes(kafka, accepted())
    kafka.script(ListGroupsRequest, ListGroupsResponse())

    async def test() -> None:
        connection = await Connection.open(ADDRESS, SETTINGS)
        await connection.call(ListGroupsRequest())

    run(kafka, test())
    assert names(kafka) == ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "ListGroups"]
    assert kafka.of(SaslHandshakeRequest)[0].request.mechanism == "PLAIN"
    assert bytes(kafka.of(SaslAuthenticateRequest)[0].request.auth_bytes) == b"\0alice\0alice-secret"


def test_refused_password_is_not_retried_at_another_broker_and_not_shown(kafka: FakeKafka) -> None:
    handshakes(kafka, refused("Authentication failed: Invalid username or password"))

    async def test() -> None:
        async with Cluster(kafka.bootstrap, SETTINGS):
            pass

    with pytest.raises(AuthenticationFailed) as failed:
        run(kafka, test())
    assert "Invalid username or password" in str(failed.value)
    assert failed.value.remedy == "check the user 'alice' and its password in sasl.jaas.config"
    assert failed.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert PASSWORD not in str(failed.value) + repr(failed.value)
    assert len(kafka.of(SaslAuthenticateRequest)) == 1


@pytest.mark.parametrize(
    ("response", "remedy"),
    [
        (SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
         "set sasl.mechanism to SCRAM-SHA-256, SCRAM-SHA-512"),
        (SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE), "set security.protocol to PLAINTEXT or SSL"),
    ],
)  # fmt: skip
def test_refused_mechanism_names_the_supported_ones(kafka: FakeKafka, response: Message, remedy: str) -> None:
    kafka.script(SaslHandshakeRequest, response)
    with pytest.raises(AuthenticationFailed) as failed:
        run(kafka, Connection.open(ADDRESS, SETTINGS))
    assert failed.value.remedy == remedy


def test_listener_that_does_not_list_the_handshake_has_no_login(kafka: FakeKafka) -> None:
    kafka.versions = {SaslHandshakeRequest.API_KEY: (90, 99)}
    with pytest.raises(AuthenticationFailed, match="has no login; set security"):
        run(kafka, Connection.open(ADDRESS, SETTINGS))


def test_session_is_renewed_before_it_expires_and_requests_wait_for_it(kafka: FakeKafka) -> None:
    handshakes(kafka, accepted(LIFETIME_MS), accepted(LIFETIME_MS))
    kafka.script(ListGroupsRequest, *[ListGroupsResponse() for _ in range(4)])

    async def test() -> None:
        connection = await Connection.open(ADDRESS, SETTINGS)
        await asyncio.sleep(RENEWAL_MIN * LIFETIME_MS / 1_000 - 1)
        await connection.call(ListGroupsRequest())
        await asyncio.sleep((RENEWAL_MAX - RENEWAL_MIN) * LIFETIME_MS / 1_000 + 2)
        await asyncio.gather(*(connection.call(ListGroupsRequest()) for _ in range(3)))

    run(kafka, test())
    assert names(kafka) == [
        "ApiVersions", "SaslHandshake", "SaslAuthenticate", "ListGroups",
        "SaslHandshake", "SaslAuthenticate", "ListGroups", "ListGroups", "ListGroups",
    ]  # fmt: skip


def test_session_without_lifetime_is_never_renewed(kafka: FakeKafka) -> None:
    handshakes(kafka, accepted())
    kafka.script(ListGroupsRequest, ListGroupsResponse())

    async def test() -> None:
        connection = await Connection.open(ADDRESS, SETTINGS)
        await asyncio.sleep(10_000)
        await connection.call(ListGroupsRequest())

    run(kafka, test())
    assert len(kafka.of(SaslHandshakeRequest)) == 1


def test_refused_renewal_closes_the_connection(kafka: FakeKafka) -> None:
    handshakes(kafka, accepted(LIFETIME_MS), refused("Cannot change principals during re-authentication"))

    async def test() -> bool:
        connection = await Connection.open(ADDRESS, SETTINGS)
        await asyncio.sleep(LIFETIME_MS / 1_000)
        with pytest.raises(AuthenticationFailed, match="Cannot change principals"):
            await connection.call(ListGroupsRequest())
        return connection.closed

    assert run(kafka, test())


def test_plain_client_whose_first_request_closes_the_connection_learns_of_secure_listeners(kafka: FakeKafka) -> None:
    kafka.script(MetadataRequest, Fault.DISCONNECT)

    async def test() -> None:
        async with Cluster(kafka.bootstrap):
            pass

    with pytest.raises(ConnectionLost) as lost:
        run(kafka, test())
    assert "set security.protocol" in lost.value.remedy
