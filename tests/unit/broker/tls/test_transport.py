"""TLS between a transport and its protocol, on asyncio and on uvloop, against Python's own TLS and against itself."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from odradek.broker.network.peer_end import has_ended
from odradek.broker.tls import transport as tls_transport
from odradek.broker.tls.contexts import load_stores, server_context
from odradek.broker.tls.transport import ENCRYPTED_BYTES_MAX
from tests.support.certificates import issue
from tests.support.tls_rig import NODE, End, TlsServer, client_side, node_config, server_side

Run = Callable[[Coroutine[Any, Any, None]], None]
MIB = 1024 * 1024
TIMEOUT_S = 60


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_on_loop(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(main, TIMEOUT_S))

    return run_on_loop


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def echo(end: End, data: bytes) -> None:
    end.transport.write(data)


def test_data_of_any_size_arrives_unchanged_in_both_directions(run: Run) -> None:
    async def main() -> None:
        async with TlsServer(on_data=echo) as server:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=client_side(), server_hostname="localhost"
            )
            data = pattern(3 * MIB + 7)
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
            writer.close()
            await server.accepted[0].lost

    run(main())


def test_both_ends_can_use_the_transport(run: Run) -> None:
    async def main() -> None:
        async with TlsServer(context=server_side(requires=True), on_data=echo) as server:
            client = await server.connect(client_side(NODE))
            client.transport.writelines([b"a", b"", pattern(100_000), b"z"])  # before the handshake is complete
            assert await client.has(100_002) == b"a" + pattern(100_000) + b"z"
            assert server.accepted[0].certificate == client.certificate
            client.transport.close()
            assert await client.lost is None
            assert await server.accepted[0].lost is None

    run(main())


def test_unsent_bytes_are_counted_and_encrypted_only_as_the_client_reads(run: Run) -> None:
    async def main() -> None:
        async with TlsServer() as server:
            client = await server.connect(client_side())
            await client.done
            end = server.accepted[0]
            await end.done
            client.transport.pause_reading()
            end.transport.set_write_buffer_limits(high=MIB, low=0)
            total = 24 * MIB
            end.transport.write(pattern(total))
            assert end.writing == ["pause"]
            waits = end.transport.get_write_buffer_size()
            assert waits > total // 2  # the kernel has the rest
            transport = end.transport
            assert waits - transport._unencrypted_bytes <= ENCRYPTED_BYTES_MAX * 2
            client.transport.resume_reading()
            await end.resumed.wait()
            assert end.transport._unencrypted_bytes == 0
            assert await client.has(total) == pattern(total)
            assert end.writing == ["pause", "resume"]

    run(main())


def test_paused_protocol_receives_nothing_and_loses_nothing(run: Run) -> None:
    def pause(end: End, data: bytes) -> None:
        end.transport.pause_reading()
        asyncio.get_running_loop().call_soon(end.transport.resume_reading)

    async def main() -> None:
        async with TlsServer(on_data=pause) as server:
            client = await server.connect(client_side())
            client.transport.write(pattern(MIB))
            while not server.accepted:
                await client.done
            assert await server.accepted[0].has(MIB) == pattern(MIB)

    run(main())


def test_close_sends_what_was_written_before(run: Run) -> None:
    async def main() -> None:
        async with TlsServer() as server:
            client = await server.connect(client_side())
            await client.done
            end = server.accepted[0]
            await end.done
            end.transport.write(pattern(8 * MIB))
            end.transport.close()
            assert end.transport.is_closing()
            assert await client.has(8 * MIB) == pattern(8 * MIB)
            assert await client.lost is None
            assert await end.lost is None

    run(main())


@pytest.mark.parametrize(
    ("client", "host", "reason_of_client", "reason_of_server"),
    [
        (lambda: client_side(trusted=issue("other", ca=True)), "localhost", "certificate verification failed", "alert"),
        (client_side, "another.example", "Hostname mismatch", "alert"),
        (client_side, "localhost", "certificate required", "did not return a certificate"),
        (lambda: client_side(issue("self-signed")), "localhost", "unknown ca", "certificate verification failed"),
    ],
)
def test_refused_certificate_ends_both_ends_with_the_reason(
    run: Run, client: Callable[[], ssl.SSLContext], host: str, reason_of_client: str, reason_of_server: str
) -> None:
    async def main() -> None:
        async with TlsServer(context=server_side(requires=True)) as server:
            end = await server.connect(client(), host)
            assert isinstance(await end.lost, ssl.SSLError)
            assert reason_of_client in str(end.failure)
            await server.accepted[0].lost
            assert reason_of_server in str(server.accepted[0].failure)
            assert not server.accepted[0].done.done()
            assert not len(server.handshakes)

    run(main())


def test_client_without_tls_is_disconnected(run: Run) -> None:
    async def main() -> None:
        async with TlsServer() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\0\0\0\x20\0\x12\0\3" + bytes(28))
            await reader.read()
            await server.accepted[0].lost
            assert server.accepted[0].failure == "the other side does not use TLS; set security.protocol=SSL there"
            writer.close()

    run(main())


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01"], ids=["silent", "incomplete"])
def test_handshake_without_an_end_is_ended_by_its_deadline(
    run: Run, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_SECONDS_MAX", 0.2)

    async def main() -> None:
        async with TlsServer() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(first)
            assert await reader.read() == b""
            assert isinstance(await server.accepted[0].lost, TimeoutError)
            assert "did not end within 0.2 seconds" in str(server.accepted[0].failure)
            writer.close()

    run(main())


def test_deadline_does_not_apply_while_the_node_does_not_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_SECONDS_MAX", 0.1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with TlsServer(on_made=lambda end: loop.call_soon(end.transport.pause_reading)) as server:
            opened = loop.create_task(
                asyncio.open_connection("127.0.0.1", server.port, ssl=client_side(), server_hostname="localhost")
            )
            passed = loop.create_future()
            loop.call_later(0.3, passed.set_result, None)
            await passed
            assert server.accepted[0].failure is None
            assert not opened.done()
            monkeypatch.undo()
            server.accepted[0].transport.resume_reading()
            _, writer = await opened
            await server.accepted[0].done
            writer.close()

    run(main())


def restricted() -> ssl.SSLContext:
    """Return the context of a listener with default properties."""
    config = node_config()
    return server_context(config, "none", load_stores(config, lambda _: b""))


async def s_client(port: int, *arguments: str, commands: bytes = b"") -> str:
    """Return the output of `openssl s_client`, which sends `commands` after the handshake."""
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-cipher", "ALL:@SECLEVEL=0", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(commands)
    if not commands:
        process.stdin.close()
    output = await process.stdout.read()
    await process.wait()
    return output.decode(errors="replace")


@pytest.mark.parametrize(
    ("version", "protocol"), [("-tls1", None), ("-tls1_1", None), ("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")]
)
async def test_openssl_connects_with_versions_1_2_and_1_3_only(version: str, protocol: str | None) -> None:
    async with TlsServer(context=restricted()) as server:
        output = await s_client(server.port, version)
    assert f"New, {protocol or '(NONE)'}, Cipher is " in output
    if protocol is not None:
        assert "Compression: NONE" in output


async def test_renegotiation_is_refused() -> None:
    async with TlsServer(context=restricted()) as server:
        output = await s_client(server.port, "-tls1_2", commands=b"R\n")
    assert "RENEGOTIATING" in output
    assert "no renegotiation" in output


async def test_end_of_an_unread_connection_is_found_at_its_socket() -> None:
    async with TlsServer() as server:
        client = await server.connect(client_side())
        await client.done
        end = server.accepted[0]
        await end.done
        end.transport.pause_reading()
        assert not has_ended(end.transport)
        client.transport.close()
        await client.lost
        async with asyncio.timeout(TIMEOUT_S):
            while not has_ended(end.transport):
                await asyncio.sleep(0)
