"""Fetch with read_committed: the records that a consumer keeps, compared with a model of the log."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.fetch import read as fetch_read
from odradek.protocol.batch import iter_batches, iter_records
from odradek.protocol.messages.fetch import PartitionData
from odradek.storage.config import LogConfig
from tests.support.data_rig import Rig
from tests.support.fetching import append, end, in_transaction, offsets, partition_responses, read, request


class Model:
    """Model of the log: the kind and the producer of each record, and the open transactions."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []  # ("data" | "plain" | "commit" | "abort", producer)
        self.open: dict[int, int] = {}

    def visible(self) -> tuple[int, list[int]]:
        """Return the last stable offset and the offsets of the committed data records below it."""
        stable = min(self.open.values(), default=len(self.rows))
        ends: dict[int, str] = {}
        visible = []
        for offset in range(len(self.rows) - 1, -1, -1):
            kind, producer = self.rows[offset]
            if kind in {"commit", "abort"}:
                ends[producer] = kind
            elif offset < stable and (kind == "plain" or ends.get(producer) == "commit"):
                visible.append(offset)
        return stable, visible[::-1]


def visible_offsets(partition: PartitionData, position: int) -> list[int]:
    """Return the offsets from `position` on that a read_committed consumer keeps of one partition response.

    As in Kafka's consumer, the list of aborted transactions and the abort markers decide, batch by batch.
    """
    assert partition.records is not None
    assert partition.aborted_transactions is not None
    pending = sorted(partition.aborted_transactions, key=lambda transaction: transaction.first_offset)
    aborted: dict[int, None] = {}
    offsets_read: list[int] = []
    for header, view in iter_batches(partition.records):
        while pending and pending[0].first_offset <= header.last_offset:
            aborted[pending.pop(0).producer_id] = None
        if header.is_control:
            kind = next(iter(iter_records(view, max_decompressed_bytes=1_000)))
            if kind.key is not None and kind.key[3] == 0:
                aborted.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in aborted):
            records = iter_records(view, max_decompressed_bytes=100_000)
            offsets_read.extend(record.offset for record in records if record.offset >= position)
    return offsets_read


STEP = st.tuples(st.sampled_from(["data", "data", "plain", "commit", "abort"]), st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(STEP, max_size=25),
    size=st.integers(1, 800),
    segment_bytes=st.sampled_from([100, 300, 1_000_000]),
    index_interval=st.sampled_from([0, 150, 4096]),
    aborted_max=st.sampled_from([1, 2, 10_000]),
)
def test_read_committed_consumer_reads_exactly_the_committed_records(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    size: int,
    segment_bytes: int,
    index_interval: int,
    aborted_max: int,
) -> None:
    async def play() -> None:
        config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval)
        rig = Rig(tmp_path_factory.mktemp("logs"), config=config)
        rig.topic("t")
        model, sequences = Model(), dict.fromkeys(range(4), 0)
        for kind, producer in steps:
            if kind == "data":
                in_transaction(rig, producer, sequences[producer])
                sequences[producer] += 1
                model.open.setdefault(producer, len(model.rows))
            elif kind == "plain":
                append(rig, b"p")
            elif producer not in model.open:
                continue
            else:
                end(rig, producer, commit=kind == "commit")
                del model.open[producer]
            model.rows.append((kind, producer))
        stable, expected = model.visible()
        position, offsets_read = 0, list[int]()
        while position < stable:
            fetch_request = request(("t", 0, position), isolation_level=1, partition_bytes=size)
            partition = partition_responses(await read(rig, fetch_request))[0]
            assert (partition.last_stable_offset, partition.high_watermark) == (stable, len(model.rows))
            offsets_read += visible_offsets(partition, position)
            batch_offsets = offsets(partition)
            assert batch_offsets
            position = batch_offsets[-1] + 1
        assert (offsets_read, position) == (expected, stable)
        end_partition = partition_responses(await read(rig, request(("t", 0, stable), isolation_level=1)))[0]
        assert (end_partition.records, end_partition.aborted_transactions) == (b"", [])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_read, "ABORTED_MAX", aborted_max)
        asyncio.run(play())


async def test_response_has_a_bounded_number_of_aborted_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of 370,000 tiny transactions fits fetch.max.bytes, and takes 0.4 s. The response ends earlier."""
    monkeypatch.setattr(fetch_read, "ABORTED_MAX", 2)
    rig = Rig(tmp_path, config=LogConfig(index_interval_bytes=0))
    rig.topic("t")
    for sequence in range(5):
        in_transaction(rig, 1, sequence)
        end(rig, 1, commit=False)
    counts, position = [], 0
    while position < 10:
        fetch_request = request(("t", 0, position), isolation_level=1, min_bytes=100_000, max_wait_ms=60_000)
        partition = partition_responses(await read(rig, fetch_request))[0]
        counts.append(len(partition.aborted_transactions or ()))
        position = offsets(partition)[-1] + 1
        if position == 8:
            break
    assert (counts, position) == ([2, 2], 8)
