"""Tokens from the endpoint of an identity provider."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from odradek.client import AuthenticationFailed, Unreachable
from odradek.client.security.tokens import TokenEndpoint
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "app-secret"


class Provider(BaseHTTPRequestHandler):
    """An identity provider that sends the scripted responses."""

    scripted: ClassVar[list[tuple[int, bytes]]] = []
    requests: ClassVar[list[tuple[str | None, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append((self.headers["Authorization"], body))
        status, content = self.scripted.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def provider(*responses: tuple[int, bytes]) -> Iterator[TokenEndpoint]:
    Provider.scripted[:], Provider.requests[:] = responses, []
    with HTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield TokenEndpoint(f"http://127.0.0.1:{server.server_port}/token", "app", SECRET, "kafka read")
        finally:
            server.shutdown()
            thread.join()


def issued(token: str, expires_in: int) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": token, "expires_in": expires_in}).encode()


def test_token_is_requested_with_client_credentials_and_kept_until_it_is_old() -> None:
    async def tokens(endpoint: TokenEndpoint) -> list[str]:
        return [await endpoint.token(), await endpoint.token()]

    with provider(issued("one", 3_600)) as endpoint:
        assert asyncio.run(tokens(endpoint)) == ["one", "one"]
    assert Provider.requests == [("Basic YXBwOmFwcC1zZWNyZXQ=", b"grant_type=client_credentials&scope=kafka+read")]
    with provider(issued("one", 0), issued("two", 0)) as endpoint:
        assert asyncio.run(tokens(endpoint)) == ["one", "two"]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ((401, b"{}"), "refused the client 'app' \\(HTTP 401\\)"),
        ((200, b"<html>"), "is no JSON object"),
        ((200, b"[]"), "is no JSON object"),
        ((200, b'{"access_token": "a b"}'), "has no bearer token"),
        ((200, b"{}"), "has no bearer token"),
    ],
)
def test_response_without_a_token_is_a_failed_login(response: tuple[int, bytes], expected: str) -> None:
    with provider(response) as endpoint, pytest.raises(AuthenticationFailed, match=expected) as failed:
        asyncio.run(endpoint.token())
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b"])
def test_endpoint_that_does_not_listen_or_whose_name_dns_cannot_encode_is_unreachable(host: str) -> None:
    endpoint = TokenEndpoint(f"http://{host}:{free_port()}/token", "app", SECRET)
    with pytest.raises(Unreachable, match="cannot be reached"):
        asyncio.run(endpoint.token())
