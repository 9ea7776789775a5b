from __future__ import annotations

from odradek.storage.disk.read_buffers import READ_BUFFER_BYTES, READ_BUFFER_BYTES_MIN, READ_BUFFERS_MAX, ReadBuffers


def address(view: bytearray | memoryview) -> int:
    assert isinstance(view, memoryview)
    return id(view.obj)


def test_a_buffer_is_used_again_once_every_view_of_it_is_gone() -> None:
    buffers = ReadBuffers()
    first = buffers.take(READ_BUFFER_BYTES)
    part = memoryview(first)[10:20]
    where = address(first)
    del first
    second = buffers.take(READ_BUFFER_BYTES)
    assert address(second) != where
    del part
    assert address(buffers.take(READ_BUFFER_BYTES_MIN)) == where


def test_what_is_looked_at_is_not_overwritten() -> None:
    buffers = ReadBuffers()
    taken = [buffers.take(READ_BUFFER_BYTES_MIN + number) for number in range(READ_BUFFERS_MAX + 5)]
    for number, view in enumerate(taken):
        view[:] = bytes([number]) * len(view)
    assert [(len(view), view[0], view[-1]) for view in taken] == [
        (READ_BUFFER_BYTES_MIN + number, number, number) for number in range(READ_BUFFERS_MAX + 5)
    ]


def test_the_memory_that_is_kept_is_bounded() -> None:
    buffers = ReadBuffers()
    taken = [buffers.take(READ_BUFFER_BYTES) for _ in range(READ_BUFFERS_MAX + 1)]
    assert [isinstance(view, memoryview) for view in taken] == [True] * READ_BUFFERS_MAX + [False]


def test_small_and_huge_reads_get_memory_of_their_own() -> None:
    buffers = ReadBuffers()
    assert type(buffers.take(0)) is type(buffers.take(READ_BUFFER_BYTES_MIN - 1)) is bytearray
    assert type(buffers.take(READ_BUFFER_BYTES + 1)) is bytearray
