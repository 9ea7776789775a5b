"""The keys of an OAuth provider: read its JWKS document from a file or by HTTP, off the event loop, again and again.

Without a document that could be read, no key is known, so each token is refused.
"""

import ssl
from asyncio import Event, sleep, timeout
from collections.abc import Callable, Coroutine
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import structlog

from odradek.broker.security.token_validator import KeySet, VerificationKey, parse_jwks

DOCUMENT_BYTES_MAX: Final = 1024 * 1024
"""Maximum bytes of a JWKS document. A key has about 500 bytes."""
READ_SECONDS_MAX: Final = 10.0
"""Maximum seconds without a byte of the document."""
RETRY_SECONDS: Final = 10.0
"""Minimum seconds between two reads that tokens with unknown keys cause: clients can send any number of them.

A shorter `sasl.oauthbearer.jwks.endpoint.refresh.ms` replaces it.
"""
LOGGED_KEYS_MAX: Final = 5
"""Maximum keys in the log event about unusable keys."""
_OK: Final = 200
_logger = structlog.get_logger(__name__)


class Jwks:
    """The keys of one JWKS document."""

    def __init__(
        self,
        url: str,
        refresh_ms: int,
        read: Callable[[str], bytes],
        in_thread: Callable[[Callable[[], KeySet]], Coroutine[Any, Any, KeySet]],
    ) -> None:
        """`read` returns the document of a URL. `in_thread` runs a function off the event loop.

        The document is parsed there, too: 1,000 keys take about 100 ms.
        """
        self._url = url
        self._refresh_s = refresh_ms / 1_000
        self._read = read
        self._in_thread = in_thread
        self._set = KeySet({})
        self._missed = Event()
        self._problem: str | None = None

    def key(self, key_id: str) -> VerificationKey | None:
        """Return the key with this id, or None if it is unknown. The document is then read again.

        A token without a key id needs no choice if the document has one key.
        """
        keys = self._set.keys
        if not key_id and len(keys) == 1:
            return next(iter(keys.values()))
        key = keys.get(key_id)
        if key is None:
            self._missed.set()
        return key

    async def run(self) -> None:
        """Read the document at each interval, and earlier if a token has an unknown key."""
        while True:
            self._missed.clear()
            await self.refresh()
            pause_s = min(RETRY_SECONDS, self._refresh_s)
            await sleep(pause_s)
            with suppress(TimeoutError):
                async with timeout(self._refresh_s - pause_s):
                    await self._missed.wait()

    def _read_keys(self) -> KeySet:
        return parse_jwks(self._read(self._url))

    async def refresh(self) -> None:
        """Read the document. If that fails, log the reason once, and keep the keys. Log unusable keys once, too."""
        before = self._set
        try:
            read = self._set = await self._in_thread(self._read_keys)
        except (OSError, HTTPException, ValueError) as error:
            if self._problem != str(error):
                self._problem = str(error)
                _logger.warning("JWKS document not read", url=self._url, reason=str(error), keys=len(before.keys))
            return
        if read.skipped and read.skipped != before.skipped:
            _logger.warning("JWKS keys skipped", url=self._url, reasons=list(read.skipped[:LOGGED_KEYS_MAX]))
        if self._problem is not None:
            self._problem = None
            _logger.info("JWKS document read", url=self._url, keys=len(read.keys))


def read_document(read_file: Callable[[str], bytes], url: str) -> bytes:
    """Return the document of a URL with https, http or file. Raise OSError, HTTPException or ValueError.

    A redirect is an error: the configured server alone can name keys.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        document = read_file(unquote(parts.path))
    else:
        document = _fetched(parts.scheme, parts.netloc, f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}")
    if len(document) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"the JWKS document has more than {DOCUMENT_BYTES_MAX} bytes")
    return document


def _fetched(scheme: str, netloc: str, target: str) -> bytes:
    host = netloc.rpartition("@")[2]
    connection: HTTPConnection
    if scheme == "https":
        connection = HTTPSConnection(host, timeout=READ_SECONDS_MAX, context=ssl.create_default_context())
    else:
        connection = HTTPConnection(host, timeout=READ_SECONDS_MAX)
    try:
        connection.request("GET", target, headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != _OK:
            raise ValueError(f"the server responded with status {response.status}")
        return response.read(DOCUMENT_BYTES_MAX + 1)
    finally:
        connection.close()
