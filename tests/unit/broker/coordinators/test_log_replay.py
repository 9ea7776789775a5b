"""Replay of a coordinator's log: slices within one batch, and batches that expand beyond their bound."""

import asyncio
import re
from pathlib import Path

import pytest

from odradek.broker.coordinators import log_replay
from odradek.broker.coordinators.log_replay import RECORDS_PER_SLICE, replay
from odradek.protocol.batch import Compression, build_batch
from odradek.protocol.errors import Malformed
from odradek.runtime.shard import Marker, ShardRecord
from odradek.storage.producers.entry import Origin
from tests.support.crafted import TOO_LONG_DELTA, crafted, tiny_record, tiny_records, traced_peak
from tests.support.data_rig import NOW_MS, Rig

MIB = 1024 * 1024


@pytest.mark.parametrize("codec", list(Compression))
async def test_replay_pauses_within_a_batch_of_many_records(tmp_path: Path, codec: Compression) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    for data in (tiny_records(5_000, codec), tiny_records(3)):
        rig.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS)
    visited: list[int] = []
    per_turn = [0]

    def visit(offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
        assert isinstance(entry, ShardRecord)
        visited.append(offset)
        per_turn[-1] += 1

    task = asyncio.ensure_future(replay(rig.partition(), 10, 5_003, visit, read_bytes=MIB))
    while not task.done():
        per_turn.append(0)
        await asyncio.sleep(0)
    await task
    assert visited == list(range(10, 5_003))
    assert max(per_turn) <= RECORDS_PER_SLICE


async def test_replay_skips_the_headers_of_a_record(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    rig.partition().append(crafted(tiny_record(0, headers=200_000), 1), origin=Origin.CLIENT, now_ms=NOW_MS)
    visited: list[ShardRecord | Marker] = []
    with traced_peak() as peak:
        await replay(rig.partition(), 0, 1, lambda _offset, entry, _epoch: visited.append(entry), read_bytes=MIB)
    assert visited == [ShardRecord(b"", b"")]
    assert peak.bytes < 2 * MIB


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
async def test_replay_of_a_batch_that_expands_too_far_is_malformed(
    tmp_path: Path, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_replay, "BATCH_BYTES_MAX", MIB)
    rig = Rig(tmp_path)
    rig.topic("t")
    data = build_batch([(b"k", bytes(8 * MIB), NOW_MS, ())], compression=codec)
    rig.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS)
    with traced_peak() as peak, pytest.raises(Malformed):
        await replay(rig.partition(), 0, 1, lambda *_: None, read_bytes=MIB)
    assert peak.bytes <= 3 * MIB


async def test_error_of_an_unreadable_batch_has_its_file_and_offset(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    for data in (tiny_records(3), crafted(TOO_LONG_DELTA, 1)):
        rig.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS)
    path = re.escape(rig.partition().log.segments.first.path(".log"))
    with pytest.raises(Malformed, match=f"^{path}: batch at or after offset 3: .* does not fit its type$"):
        await replay(rig.partition(), 0, 4, lambda *_: None, read_bytes=MIB)
