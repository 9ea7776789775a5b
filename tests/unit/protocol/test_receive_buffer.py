"""The receive buffer that all connections of an event loop share. The tests count the buffers of single connections."""

from __future__ import annotations

import asyncio
import mmap
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.framing import (
    MAPPED_FRAME_BYTES_MIN,
    OWN_BUFFER_BYTES_MIN,
    OWN_BUFFER_GROWTH,
    RECEIVE_BUFFER_BYTES,
    FrameReader,
    ReceiveBuffer,
)
from tests.support.effort import effort

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1_048_576
FRAME_BYTES_MAX = MIB
SIZES = (0, 1, 100, 5_000, RECEIVE_BUFFER_BYTES - 4, RECEIVE_BUFFER_BYTES, 3 * RECEIVE_BUFFER_BYTES)


def readers(count: int, frame_bytes_max: int = FRAME_BYTES_MAX) -> list[FrameReader]:
    shared = ReceiveBuffer()
    return [FrameReader(frame_bytes_max=frame_bytes_max, frame_bytes_min=0, shared=shared) for _ in range(count)]


def frame_of(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def receive(reader: FrameReader, data: bytes) -> list[bytes]:
    """Receive as a transport does, and return the complete frames."""
    frames: list[bytes] = []
    unread = memoryview(data)
    while unread:
        buffer = reader.get_buffer()
        size = min(len(buffer), len(unread))
        buffer[:size] = unread[:size]
        reader.buffer_updated(size)
        unread = unread[size:]
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


@pytest.mark.parametrize("size", SIZES)
def test_connection_without_an_incomplete_frame_owns_no_buffer(size: int) -> None:
    idle = readers(100)
    for number, reader in enumerate(idle):
        assert receive(reader, frame_of(bytes([number]) * size)) == [bytes([number]) * size]
    assert [reader.own_bytes for reader in idle] == [0] * 100


def test_incomplete_frame_leaves_the_shared_buffer_when_another_connection_reads() -> None:
    first, second = readers(2)
    whole = frame_of(b"a" * 3_000)
    assert receive(first, whole[:2_000]) == []
    assert first.own_bytes == 0
    assert receive(second, frame_of(b"b" * 3_000)) == [b"b" * 3_000]
    assert first.own_bytes == OWN_BUFFER_GROWTH * 2_000
    assert first.frame_started
    assert receive(first, whole[2_000:]) == [b"a" * 3_000]
    assert (first.own_bytes, second.own_bytes) == (0, 0)


def test_declared_size_alone_allocates_at_most_the_minimum() -> None:
    first, second = readers(2)
    receive(first, (FRAME_BYTES_MAX).to_bytes(4, "big")[:3])
    receive(second, b"\x00")
    assert first.own_bytes == OWN_BUFFER_BYTES_MIN


def test_closed_connection_keeps_no_buffer_and_moves_nothing() -> None:
    first, second = readers(2)
    receive(first, b"\x00\x00\x00\x09abc")
    first.close()
    assert receive(second, frame_of(b"b")) == [b"b"]
    assert (first.own_bytes, first.buffered) == (0, 0)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_half_frames_occupy_the_memory_of_their_received_bytes() -> None:
    size, received = 64 * MIB, 16 * MIB + 1
    halves = readers(4, size)
    half = size.to_bytes(4, "big") + bytes(received)
    before = resident_bytes()
    for reader in halves:
        assert receive(reader, half) == []
    assert sum(reader.own_bytes for reader in halves) == len(halves) * received
    assert resident_bytes() - before < len(halves) * received + 32 * MIB


def test_buffer_of_a_large_frame_grows_in_bounded_steps() -> None:
    [reader] = readers(1, 16 * MIB)
    receive(reader, (16 * MIB).to_bytes(4, "big") + bytes(RECEIVE_BUFFER_BYTES - 4))
    own = [reader.own_bytes]
    while reader.frame_started:
        receive(reader, bytes(RECEIVE_BUFFER_BYTES))
        own.append(reader.own_bytes)
    assert max(after - before for before, after in pairwise(own)) <= MAPPED_FRAME_BYTES_MIN


@pytest.mark.parametrize("size", [MAPPED_FRAME_BYTES_MIN - 1, MAPPED_FRAME_BYTES_MIN, MAPPED_FRAME_BYTES_MIN + 1])
def test_frame_in_a_mapping_has_the_received_bytes(size: int) -> None:
    reader, _ = readers(2, MAPPED_FRAME_BYTES_MIN + 1)
    body = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    assert receive(reader, frame_of(body) + frame_of(b"next")) == [body, b"next"]
    assert reader.own_bytes == 0


@settings(max_examples=effort(30), deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(SIZES) | st.integers(0, 5_000), max_size=4), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50_000)), max_size=40),
    st.booleans(),
)
def test_any_interleaving_of_connections_gives_the_frames_of_each(
    sizes: list[list[int]], turns: list[tuple[int, int]], greedy: bool
) -> None:
    connections = readers(len(sizes))
    bodies = [[bytes([16 * one + index]) * size for index, size in enumerate(own)] for one, own in enumerate(sizes)]
    left = [b"".join(map(frame_of, own)) for own in bodies]
    found: list[list[bytes]] = [[] for _ in sizes]
    for one, size in [*turns, *((one, FRAME_BYTES_MAX) for one in range(len(sizes)))]:
        number = one % len(sizes)
        piece, left[number] = left[number][:size], left[number][size:]
        if greedy:
            connections[number].receive_data(piece)  # the frames are taken at the end
        else:
            found[number] += receive(connections[number], piece)
    for number, reader in enumerate(connections):
        found[number] += iter(lambda reader=reader: bytes_or_none(reader), None)  # type: ignore[misc]
    assert found == bodies
    assert all(reader.own_bytes == 0 for reader in connections)


def bytes_or_none(reader: FrameReader) -> bytes | None:
    frame = reader.next_frame()
    return None if frame is None else bytes(frame)


class Receiver(asyncio.BufferedProtocol):
    """Protocol that collects frames, as a broker's connection does. It notes each call in `calls`."""

    def __init__(self, reader: FrameReader, calls: list[tuple[str, int]], ended: asyncio.Future[None]) -> None:
        self.reader = reader
        self.calls = calls
        self.ended = ended
        self.frames: list[bytes] = []

    def get_buffer(self, sizehint: int) -> memoryview:
        self.calls.append(("get", id(self)))
        return self.reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.calls.append(("updated", id(self)))
        self.reader.buffer_updated(nbytes)
        self.frames += iter(lambda: bytes_or_none(self.reader), None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_transports_read_into_the_buffer_before_another_connection_reads(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(exchange())


async def exchange() -> None:
    loop = asyncio.get_running_loop()
    idle = readers(5)
    calls: list[tuple[str, int]] = []
    receivers: list[Receiver] = []
    accepted = loop.create_future()

    def accept() -> Receiver:
        receivers.append(Receiver(idle[len(receivers)], calls, loop.create_future()))
        if len(receivers) == len(idle):
            accepted.set_result(None)
        return receivers[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in idle]
    bodies = [[bytes([number]) * size for size in SIZES] for number in range(len(idle))]
    streams = [b"".join(map(frame_of, own)) for own in bodies]
    for position in range(0, len(streams[0]), 7_001):
        for writer, stream in zip(writers, streams, strict=True):
            writer.write(stream[position : position + 7_001])
        await asyncio.gather(*(writer.drain() for writer in writers))
    for writer in writers:
        writer.close()
    await accepted
    for receiver in receivers:
        await receiver.ended
    server.close()
    assert sorted(receiver.frames for receiver in receivers) == sorted(bodies)
    for before, call in pairwise(calls):
        if call[0] == "updated":
            assert before == ("get", call[1])
