"""What a read_committed consumer makes of our answers, against a model of the log."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.batch import iter_batches, iter_records
from odradek.protocol.messages.fetch import PartitionData
from odradek.storage.config import LogConfig
from tests.support.data_rig import Rig
from tests.support.fetching import append, end, in_transaction, offsets, partition_responses, read, request


class Model:
    """What the log holds, record by record, and who ended how."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []  # ("data" | "plain" | "commit" | "abort", producer)
        self.open: dict[int, int] = {}

    def visible(self) -> tuple[int, list[int]]:
        """(last stable offset, offsets of the records that a committed reader may see below it)."""
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


def as_a_consumer(answer: PartitionData, position: int) -> list[int]:
    """What a read_committed consumer makes of an answer: the aborted list, markers, whole batches."""
    assert answer.records is not None
    assert answer.aborted_transactions is not None
    pending = sorted(answer.aborted_transactions, key=lambda each: each.first_offset)
    aborted: dict[int, None] = {}
    seen: list[int] = []
    for header, view in iter_batches(answer.records):
        while pending and pending[0].first_offset <= header.last_offset:
            aborted[pending.pop(0).producer_id] = None
        if header.is_control:
            kind = next(iter(iter_records(view, max_decompressed_bytes=1_000)))
            if kind.key is not None and kind.key[3] == 0:
                aborted.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in aborted):
            records = iter_records(view, max_decompressed_bytes=100_000)
            seen.extend(record.offset for record in records if record.offset >= position)
    return seen


STEP = st.tuples(st.sampled_from(["data", "data", "plain", "commit", "abort"]), st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(STEP, max_size=25),
    size=st.integers(1, 800),
    segment_bytes=st.sampled_from([100, 300, 1_000_000]),
    index_interval=st.sampled_from([0, 150, 4096]),
)
def test_a_committed_reader_sees_exactly_what_is_committed(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    size: int,
    segment_bytes: int,
    index_interval: int,
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
        position, seen = 0, list[int]()
        while position < stable:
            asked = request(("t", 0, position), isolation_level=1, partition_bytes=size)
            answer = partition_responses(await read(rig, asked))[0]
            assert (answer.last_stable_offset, answer.high_watermark) == (stable, len(model.rows))
            seen += as_a_consumer(answer, position)
            whole = offsets(answer)
            assert whole
            position = whole[-1] + 1
        assert (seen, position) == (expected, stable)
        end_answer = partition_responses(await read(rig, request(("t", 0, stable), isolation_level=1)))[0]
        assert (end_answer.records, end_answer.aborted_transactions) == (b"", [])

    asyncio.run(play())
