"""The keys of an OAuth provider, read from a file or by HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from odradek.broker.security.jwks import DOCUMENT_BYTES_MAX, RETRY_SECONDS, Jwks, read_document
from tests.support.fake_kafka import virtual_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from odradek.broker.security.token_validator import KeySet


def document(*key_ids: str, unusable: tuple[str, ...] = ()) -> bytes:
    public = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    keys = [{**public, "kid": key_id} for key_id in key_ids]
    return json.dumps(
        {"keys": keys + [{"kty": "EC", "crv": "secp256k1", "kid": key_id} for key_id in unusable]}
    ).encode()


class Source:
    """A document that is read in virtual time. `content` None: it cannot be read."""

    def __init__(self, content: bytes | None, refresh_ms: int = 3_600_000) -> None:
        self.content = content
        self.reads = 0
        self.jwks = Jwks("https://issuer/keys", refresh_ms, self._read, self._in_thread)

    def _read(self, url: str) -> bytes:
        assert url == "https://issuer/keys"
        self.reads += 1
        if self.content is None:
            raise ConnectionRefusedError("refused")
        return self.content

    async def _in_thread(self, work: Callable[[], KeySet]) -> KeySet:
        await asyncio.sleep(0)
        return work()


def in_virtual_time(scenario: Callable[[], Any]) -> None:
    with virtual_loop() as loop:
        loop.run_until_complete(scenario())


def test_document_that_cannot_be_read_gives_no_key_and_keeps_earlier_ones() -> None:
    async def scenario() -> None:
        source = Source(None)
        await source.jwks.refresh()
        assert source.jwks.key("one") is None
        source.content = document("one")
        await source.jwks.refresh()
        for content in (None, b"{}"):
            source.content = content
            await source.jwks.refresh()
            assert source.jwks.key("one") is not None
        source.content = document("two")
        await source.jwks.refresh()
        assert (source.jwks.key("one"), source.jwks.key("two") is not None) == (None, True)

    in_virtual_time(scenario)


def test_unusable_key_delays_no_change_of_other_keys_and_is_logged_once() -> None:
    async def scenario() -> None:
        source = Source(document("removed"))
        await source.jwks.refresh()
        for _ in range(2):
            source.content = document("added", unusable=("curve",))
            await source.jwks.refresh()
        assert (source.jwks.key("removed"), source.jwks.key("added") is not None) == (None, True)

    with structlog.testing.capture_logs() as logs:
        in_virtual_time(scenario)
    reasons = ["key 'curve' has no supported algorithm"]
    assert logs == [
        {"event": "JWKS keys skipped", "log_level": "warning", "url": "https://issuer/keys", "reasons": reasons}
    ]


def test_unknown_keys_cause_a_read_at_most_each_retry_interval() -> None:
    async def scenario() -> None:
        source = Source(document("one", "other"))
        running = asyncio.ensure_future(source.jwks.run())
        await asyncio.sleep(1)
        assert source.reads == 1
        for _ in range(20):
            assert source.jwks.key("two") is None
            await asyncio.sleep(1)
        assert 2 <= source.reads <= 1 + 20 / RETRY_SECONDS
        source.content = document("two")
        await asyncio.sleep(2 * RETRY_SECONDS)
        assert source.jwks.key("two") is not None
        running.cancel()

    in_virtual_time(scenario)


def test_document_is_read_again_after_the_refresh_interval() -> None:
    async def scenario() -> None:
        source = Source(document("one"))
        running = asyncio.ensure_future(source.jwks.run())
        await asyncio.sleep(3_600 + 1)
        assert source.reads == 2
        running.cancel()

    in_virtual_time(scenario)


def test_refresh_interval_below_the_retry_interval_is_obeyed() -> None:
    async def scenario() -> None:
        source = Source(document("one"), refresh_ms=1_000)
        running = asyncio.ensure_future(source.jwks.run())
        await asyncio.sleep(RETRY_SECONDS + 0.5)
        assert source.reads == RETRY_SECONDS + 1
        running.cancel()

    in_virtual_time(scenario)


def test_token_without_a_key_id_has_the_only_key() -> None:
    async def scenario() -> None:
        source = Source(document("one"))
        await source.jwks.refresh()
        assert source.jwks.key("") is not None
        source.content = document("one", "two")
        await source.jwks.refresh()
        assert source.jwks.key("") is None

    in_virtual_time(scenario)


class Handler(BaseHTTPRequestHandler):
    documents: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_GET(self) -> None:
        status, body = self.documents.get(self.path, (404, b""))
        self.send_response(status)
        self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def test_document_is_read_by_http_without_redirects_and_within_its_limit(server: str) -> None:
    Handler.documents = {
        "/keys": (200, b"keys"),
        "/keys?a=1": (200, b"query"),
        "/moved": (302, b""),
        "/large": (200, bytes(DOCUMENT_BYTES_MAX + 1)),
    }
    assert read_document(_no_file, f"{server}/keys") == b"keys"
    assert read_document(_no_file, f"{server}/keys?a=1") == b"query"
    for path, reason in (("/moved", "status 302"), ("/absent", "status 404"), ("/large", "more than")):
        with pytest.raises(ValueError, match=reason):
            read_document(_no_file, server + path)


def test_document_is_read_from_a_file() -> None:
    assert read_document(lambda path: path.encode(), "file:///etc/the%20keys.json") == b"/etc/the keys.json"
    with pytest.raises(ValueError, match="more than"):
        read_document(lambda _: bytes(DOCUMENT_BYTES_MAX + 1), "file:///etc/keys.json")


def _no_file(path: str) -> bytes:
    raise AssertionError(path)
