"""Compaction of one log: what stays, where it lies, and what readers see of it meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.batch import build_batch
from storage.config import LogConfig
from storage.os_disk import OsDisk
from tests.support.cleaning import clean, fetched, latest
from tests.support.logs import NOW_MS, append, headers, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, cleanup_policy=("compact",))


@pytest.fixture
def disk() -> Iterator[OsDisk]:
    made = OsDisk()
    yield made
    made.close()


def put(**values: str | None) -> bytes:
    """A batch of one record for each key."""
    return build_batch(
        [(key.encode(), None if value is None else value.encode(), NOW_MS, ()) for key, value in values.items()]
    )


async def test_only_the_last_value_of_a_key_stays(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    for number in range(60):
        append(log, put(**{f"k{number % 7}": f"v{number}"}))
    before = fetched(log, committed=False)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    done = await clean(log)
    after = fetched(log, committed=False)
    assert done.end_offset == log.segments.active.base_offset == log.cleaned_to
    assert latest(after) == latest(before)
    assert [each for each in after if each.offset < done.end_offset] == [
        each for each in before if done.end_offset - 7 <= each.offset < done.end_offset
    ]
    assert [segment.base_offset for segment in log.segments] == bases, "of their sizes before no two made one segment"
    assert done.bytes_after < done.bytes_before
    await clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, bases[-1]]
    assert fetched(log, committed=False) == after
    log.close(clean=True)
    again = open_log(disk, str(tmp_path), LogConfig(), clean=True)
    again.update_high_watermark(again.log_end_offset)
    assert fetched(again, committed=False) == after
    assert [header.last_offset for header in headers(again)][-1] == again.log_end_offset - 1
