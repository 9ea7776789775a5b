"""Records of TLS: their split, and key updates of a client with a socket and nothing else."""

from __future__ import annotations

import asyncio
import hmac
import ssl
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from odradek.broker.tls.records import DATA_RECORDS_PER_OTHER, WITHOUT_DATA_MAX, Records
from tests.support.tls_rig import TlsServer, client_side

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 30
HANDSHAKE, DATA = 22, 23
KEY_UPDATE = bytes.fromhex("18 000001 01")
"""A key update that requests one of the server (RFC 8446, section 4.6.3)."""
DIGEST, KEY_BYTES, NONCE_BYTES = "sha384", 32, 12
"""Hash function and sizes of TLS_AES_256_GCM_SHA384."""


def record(size: int) -> bytes:
    return b"\x17\x03\x03" + struct.pack(">H", size) + bytes(size)


@pytest.mark.parametrize("piece", [1, 4, 5, 7, 100, 100_000])
def test_records_are_split_at_their_ends(piece: int) -> None:
    expected = [record(size) for size in (0, 1, 300, 16_640, 3)]
    received, records, found = b"".join(expected), Records(), []
    for start in range(0, len(received), piece):
        records.add(received[start : start + piece])
        while (one := records.next()) is not None:
            found.append(one)
    assert found == expected


def test_record_beyond_the_longest_one_is_returned_before_its_end() -> None:
    records = Records()
    records.add(record(20_000)[:100])
    assert records.next() == record(20_000)[:100]


def test_records_without_data_are_limited_by_those_with_data() -> None:
    records = Records()
    for _ in range(WITHOUT_DATA_MAX):
        records.count(has_data=False)
    for _ in range(DATA_RECORDS_PER_OTHER):
        records.count(has_data=True)
    records.count(has_data=False)
    with pytest.raises(ConnectionError, match="too many TLS records without data"):
        records.count(has_data=False)


class Client:
    """A client that encrypts records itself. Python cannot send a key update."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._number = 0
        """Number of the next record under the present keys."""

    @classmethod
    async def connect(cls, port: int, keys: Path) -> tuple[Client, asyncio.StreamReader, asyncio.StreamWriter]:
        context = client_side()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(keys)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65_536))
        writer.write(outgoing.read())
        cipher = tls.cipher()
        assert cipher is not None
        assert cipher[0] == "TLS_AES_256_GCM_SHA384"
        lines = keys.read_text().splitlines()
        secret = next(line.split()[2] for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0"))
        return cls(bytes.fromhex(secret)), reader, writer

    def record(self, kind: int, content: bytes) -> bytes:
        """Return the next record."""
        header = b"\x17\x03\x03" + struct.pack(">H", len(content) + 17)
        key, nonce = self._expanded(b"key", KEY_BYTES), self._expanded(b"iv", NONCE_BYTES)
        nonce = (int.from_bytes(nonce) ^ self._number).to_bytes(NONCE_BYTES)
        self._number += 1
        return header + AESGCM(key).encrypt(nonce, content + bytes([kind]), header)

    def key_update(self) -> bytes:
        """Return a key update, and use the next keys."""
        update = self.record(HANDSHAKE, KEY_UPDATE)
        self._secret, self._number = self._expanded(b"traffic upd", len(self._secret)), 0
        return update

    def _expanded(self, label: bytes, size: int) -> bytes:
        """Return HKDF-Expand-Label with an empty context (RFC 8446, section 7.1)."""
        label = b"tls13 " + label
        info = struct.pack(">H", size) + bytes([len(label)]) + label + b"\0"
        return hmac.digest(self._secret, info + b"\1", DIGEST)[:size]


async def test_key_updates_without_end_close_the_connection(tmp_path: Path) -> None:
    """Key updates would occupy the event loop for about 50 ms per read, and memory without a limit."""
    async with asyncio.timeout(TIMEOUT_S), TlsServer() as server:
        client, reader, writer = await Client.connect(server.port, tmp_path / "keys")
        writer.write(b"".join(client.key_update() for _ in range(5)) + client.record(DATA, b"data"))
        while not server.accepted:
            await asyncio.sleep(0)
        end = server.accepted[0]
        assert await end.has(4) == b"data"
        writer.write(b"".join(client.key_update() for _ in range(10 * WITHOUT_DATA_MAX)))
        received = 0
        with suppress(ConnectionResetError):  # the server does not read the last updates
            while data := await reader.read(65_536):
                received += len(data)
        await end.lost
        assert end.failure == "too many TLS records without data, such as key updates"
        assert received < 100 * WITHOUT_DATA_MAX
        writer.close()
