"""Connections by TLS to a broker in this process, and the reasons of failed handshakes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from odradek.client import AuthenticationFailed, ClientError, ConnectionLost, ProtocolError, Security, Settings
from odradek.client.network.connection import Connection
from odradek.memory_files import memory_file
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.support.certificates import Issued, issue
from tests.support.fake_kafka import FakeKafka

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")


@pytest.fixture(scope="module")
def authority() -> Issued:
    return issue("authority", ca=True)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    """Run a test on an event loop."""

    def on_loop(test: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(test)

    return on_loop


def server_context(broker: Issued, clients: Issued | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with memory_file((broker.key_pem() + broker.chain_pem).encode()) as path:
        context.load_cert_chain(path)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.pem)
    return context


@asynccontextmanager
async def serving(context: ssl.SSLContext | None) -> AsyncIterator[tuple[str, int]]:
    loop: Any = asyncio.get_running_loop()
    kafka = FakeKafka(loop)
    kafka.script(ListGroupsRequest, ListGroupsResponse(groups=[ListedGroup(group_id="a")]))
    server = await loop.create_server(kafka._factory(1), HOST, 0, ssl=context)
    try:
        yield HOST, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in kafka.connections:
            if hasattr(connection, "transport"):  # the handshake succeeded
                connection.transport.abort()


def properties(trusted: Issued, client: Issued | None = None, **others: str) -> dict[str, str]:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted.pem,
    } | {name.replace("_", "."): value for name, value in others.items()}
    if client is not None:
        given |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": client.chain_pem,
            "ssl.keystore.key": client.key_pem(),
        }
    return given


async def groups(context: ssl.SSLContext | None, given: dict[str, str], host: str = HOST) -> list[str]:
    """List the groups of a broker by the client's properties."""
    async with serving(context) as address:
        connection = await Connection.open((host, address[1]), Settings(security=Security.of(given)))
        try:
            response = await connection.call(ListGroupsRequest())
        finally:
            connection.close()
        return [group.group_id for group in response.groups]


def test_requests_pass_with_a_trusted_certificate(authority: Issued, run: Callable[[Any], Any]) -> None:
    context = server_context(issue("broker", authority, hosts=NAMES))
    for version in ("TLSv1.2", "TLSv1.3"):
        assert run(groups(context, properties(authority, ssl_enabled_protocols=version))) == ["a"]
    assert run(groups(context, properties(authority), "localhost")) == ["a"]


def test_intermediate_authority_is_trusted_without_its_issuer(authority: Issued, run: Callable[[Any], Any]) -> None:
    intermediate = issue("intermediate", authority, ca=True)
    context = server_context(issue("broker", intermediate, hosts=NAMES))
    assert run(groups(context, properties(intermediate))) == ["a"]


def test_client_certificate_is_presented(authority: Issued, run: Callable[[Any], Any]) -> None:
    context = server_context(issue("broker", authority, hosts=NAMES), clients=authority)
    assert run(groups(context, properties(authority, issue("alice", authority)))) == ["a"]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_missing_client_certificate_names_the_key_store(
    authority: Issued, run: Callable[[Any], Any], version: str
) -> None:
    """A server of asyncio closes the connection without an alert."""
    context = server_context(issue("broker", authority, hosts=NAMES), clients=authority)
    error = failure(run, context, properties(authority, ssl_enabled_protocols=version))
    assert isinstance(error, ConnectionLost)
    assert "ssl.keystore" in error.remedy


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_alert_for_a_missing_client_certificate_is_a_failed_authentication(
    authority: Issued, run: Callable[[Any], Any], version: str
) -> None:
    context = server_context(issue("broker", authority, hosts=NAMES), clients=authority)
    given = properties(authority, ssl_enabled_protocols=version)
    with socket.create_server((HOST, 0)) as server:

        def refuse() -> None:
            accepted = context.wrap_socket(server.accept()[0], server_side=True, do_handshake_on_connect=False)
            with accepted, suppress(ConnectionResetError):
                with pytest.raises(ssl.SSLError):
                    accepted.do_handshake()
                while socket.socket.recv(accepted, 1_024):  # a close with unread bytes could discard the alert
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(AuthenticationFailed, match="refused the TLS handshake") as failed:
            run(Connection.open(server.getsockname(), Settings(security=Security.of(given))))
        thread.join()
    assert "ssl.keystore" in failed.value.remedy


def failure(run: Callable[[Any], Any], context: ssl.SSLContext | None, given: dict[str, str]) -> ClientError:
    with pytest.raises(ClientError) as failed:
        run(groups(context, given))
    return failed.value


def test_unknown_authority_names_the_trust_store(authority: Issued, run: Callable[[Any], Any]) -> None:
    context = server_context(issue("broker", authority, hosts=NAMES))
    error = failure(run, context, properties(issue("other", ca=True)))
    assert isinstance(error, AuthenticationFailed)
    assert error.problem.endswith("is signed by an unknown authority")
    assert "ssl.truststore" in error.remedy


def test_certificate_for_another_host_is_refused_unless_the_verification_is_off(
    authority: Issued, run: Callable[[Any], Any]
) -> None:
    context = server_context(issue("broker", authority, hosts=["broker.example"]))
    error = failure(run, context, properties(authority))
    assert isinstance(error, AuthenticationFailed)
    assert error.problem.endswith("is not valid for '127.0.0.1'")
    unverified = properties(authority, ssl_endpoint_identification_algorithm="")
    assert run(groups(context, unverified)) == ["a"]


@pytest.mark.parametrize(("days", "expected"), [(-10, "has expired"), (10, "is not valid yet")])
def test_certificate_outside_its_validity_is_refused(
    authority: Issued, run: Callable[[Any], Any], days: int, expected: str
) -> None:
    now = datetime.now(UTC) + timedelta(days=days)
    error = failure(run, server_context(issue("broker", authority, hosts=NAMES, now=now)), properties(authority))
    assert isinstance(error, AuthenticationFailed)
    assert error.problem.endswith(expected)


def test_listener_without_tls_names_the_security_protocol(authority: Issued, run: Callable[[Any], Any]) -> None:
    error = failure(run, None, properties(authority))
    assert isinstance(error, ConnectionLost | ProtocolError)
    assert "set security.protocol=PLAINTEXT" in error.remedy


def test_plain_client_at_a_tls_listener_learns_the_security_protocol(
    authority: Issued, run: Callable[[Any], Any]
) -> None:
    error = failure(run, server_context(issue("broker", authority, hosts=NAMES)), {})
    assert "set security.protocol" in error.remedy


def test_private_key_is_in_no_representation(authority: Issued) -> None:
    client = issue("alice", authority)
    settings = Settings(security=Security.of(properties(authority, client)))
    assert "PRIVATE KEY" not in repr(settings) + repr(replace(settings, client_id="b"))
