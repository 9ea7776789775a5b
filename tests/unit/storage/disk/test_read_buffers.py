from __future__ import annotations

from odradek.storage.disk.read_buffers import READ_BUFFER_BYTES, READ_BUFFER_BYTES_MIN, READ_BUFFERS_MAX, ReadBuffers


def address(view: bytearray | memoryview) -> int:
    assert isinstance(view, memoryview)
    return id(view.obj)


def test_buffer_is_reused_after_the_last_view_of_it() -> None:
    buffers = ReadBuffers()
    first_view = buffers.take(READ_BUFFER_BYTES)
    part = memoryview(first_view)[10:20]
    where = address(first_view)
    del first_view
    second_view = buffers.take(READ_BUFFER_BYTES)
    assert address(second_view) != where
    del part
    assert address(buffers.take(READ_BUFFER_BYTES_MIN)) == where


def test_buffer_with_a_view_is_not_overwritten() -> None:
    buffers = ReadBuffers()
    views = [buffers.take(READ_BUFFER_BYTES_MIN + number) for number in range(READ_BUFFERS_MAX + 5)]
    for number, view in enumerate(views):
        view[:] = bytes([number]) * len(view)
    assert [(len(view), view[0], view[-1]) for view in views] == [
        (READ_BUFFER_BYTES_MIN + number, number, number) for number in range(READ_BUFFERS_MAX + 5)
    ]


def test_kept_buffers_are_bounded() -> None:
    buffers = ReadBuffers()
    views = [buffers.take(READ_BUFFER_BYTES) for _ in range(READ_BUFFERS_MAX + 1)]
    assert [isinstance(view, memoryview) for view in views] == [True] * READ_BUFFERS_MAX + [False]


def test_small_and_large_reads_use_no_kept_buffer() -> None:
    buffers = ReadBuffers()
    assert type(buffers.take(0)) is type(buffers.take(READ_BUFFER_BYTES_MIN - 1)) is bytearray
    assert type(buffers.take(READ_BUFFER_BYTES + 1)) is bytearray
