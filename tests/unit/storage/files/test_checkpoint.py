from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.files import checkpoint
from odradek.storage.files.checkpoint import CorruptCheckpoint, MetaProperties

TOPIC_ID = uuid.UUID("11111111-2222-4333-8444-555555555555")


def test_offset_checkpoint_has_the_format_of_kafka() -> None:
    data = b"0\n2\npayments 0 42\n__transaction_state 49 0\n"
    offsets = {("payments", 0): 42, ("__transaction_state", 49): 0}
    assert checkpoint.encode_offsets(offsets) == data
    assert checkpoint.decode_offsets(data) == offsets
    assert checkpoint.decode_offsets(b"") == {}


def test_leader_epoch_checkpoint_has_the_format_of_kafka() -> None:
    data = b"0\n2\n0 0\n3 120\n"
    assert checkpoint.encode_leader_epochs([(0, 0), (3, 120)]) == data
    assert checkpoint.decode_leader_epochs(data) == [(0, 0), (3, 120)]


@pytest.mark.parametrize(
    "data",
    [
        b"0\n",
        b"1\n0\n",
        b"0\n2\nt 0 1\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 x\n",
        b"0\n1\nt 0 1_0\n",
        b"x\n0\n",
        b"\xff\xfe",
        b"0\n1\nt 0 1 2\n",
    ],
    ids=["no count", "version", "count", "short", "no number", "underscore", "no version", "no text", "long"],
)
def test_malformed_offset_checkpoint_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoint.decode_offsets(data)


def test_partition_metadata_file_ends_without_newline() -> None:
    data = b"version: 0\ntopic_id: ERERESIiQzOERFVVVVVVVQ"
    assert checkpoint.encode_partition_metadata(TOPIC_ID) == data
    assert checkpoint.decode_partition_metadata(data) == TOPIC_ID
    assert checkpoint.decode_partition_metadata(data + b"\n") == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: -1\ntopic_id: ERERESIiQzOERFVVVVVVVQ",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: !!",
    ],
    ids=["empty", "no id", "version", "zero id", "no id either"],
)
def test_malformed_partition_metadata_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoint.decode_partition_metadata(data)


def test_meta_properties_require_each_line() -> None:
    meta = MetaProperties("Mk3iX2OoRzyYw4ZsKQUjYg", 1, TOPIC_ID)
    data = checkpoint.encode_meta_properties(meta)
    assert checkpoint.decode_meta_properties(b"#\n#Sat Nov 21 10:00:00 UTC 2026\n" + data) == meta
    assert data.splitlines()[0] == b"version=1"
    for line in data.splitlines():
        with pytest.raises(CorruptCheckpoint):
            checkpoint.decode_meta_properties(data.replace(line + b"\n", b""))
    with pytest.raises(CorruptCheckpoint):
        checkpoint.decode_meta_properties(data.replace(b"version=1", b"version=0"))


def test_clean_shutdown_marker_contains_the_broker_epoch() -> None:
    assert checkpoint.encode_clean_shutdown(42) == b'{"version":0,"brokerEpoch":42}'
    assert checkpoint.decode_clean_shutdown(b'{"version":0,"brokerEpoch":42}') == 42
    for older in (b"", b"{}", b"[]", b"\xff", b'{"brokerEpoch":"x"}'):
        assert checkpoint.decode_clean_shutdown(older) == -1


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    readers = (
        checkpoint.decode_offsets,
        checkpoint.decode_leader_epochs,
        checkpoint.decode_partition_metadata,
        checkpoint.decode_meta_properties,
        checkpoint.decode_clean_shutdown,
    )
    for reader in readers:
        try:
            reader(data)
        except CorruptCheckpoint:
            continue
