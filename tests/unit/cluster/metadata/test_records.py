"""Encoding and decoding of many records of the metadata log (cluster/metadata/records.py)."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.metadata import records
from odradek.cluster.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
    encode_records,
)
from odradek.protocol import codec
from odradek.protocol.errors import Malformed, Unencodable

IDS = st.builds(lambda number: UUID(int=number), st.integers(0, 2))
BROKERS = st.lists(st.integers(0, 2), max_size=3)
EPOCHS = st.integers(0, 1)
PARTITIONS = st.builds(
    PartitionRecord,
    partition_id=st.integers(-(2**31), 2**31 - 1),
    topic_id=IDS,
    replicas=BROKERS,
    isr=BROKERS,
    removing_replicas=BROKERS,
    adding_replicas=BROKERS,
    leader=EPOCHS,
    leader_recovery_state=EPOCHS,
    leader_epoch=EPOCHS,
    partition_epoch=EPOCHS,
    directories=st.lists(IDS, max_size=2),
    eligible_leader_replicas=st.none() | BROKERS,
    last_known_elr=st.none() | BROKERS,
    unknown_tagged_fields=st.sampled_from([(), ((9, b"x"),)]),
)
TOPICS = st.builds(TopicRecord, name=st.sampled_from(["a", "b"]), topic_id=IDS)


def partitions_of_one_topic(count: int) -> list[PartitionRecord]:
    topic_id, replicas, directories = UUID(int=7), [1, 2, 3], [UUID(int=8)] * 3
    return [
        PartitionRecord(
            partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=1, directories=directories
        )
        for index in range(count)
    ]


@given(st.lists(PARTITIONS | TOPICS, max_size=6), st.lists(PARTITIONS, max_size=2))
def test_records_are_encoded_together_as_one_by_one(
    mixed: list[MetadataRecord], repeated: list[PartitionRecord]
) -> None:
    values = [*mixed, *repeated, *mixed, *partitions_of_one_topic(3)]
    assert encode_records(values) == [encode_record(record) for record in values]


def test_the_partitions_of_one_topic_share_one_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[MetadataRecord] = []

    def counting(record: MetadataRecord) -> bytes:
        encoded.append(record)
        return encode_record(record)

    monkeypatch.setattr(records, "encode_record", counting)
    values = partitions_of_one_topic(1_000)
    assert len(encode_records(values)) == 1_000
    assert encoded == values[:1]


@given(st.lists(PARTITIONS | TOPICS, max_size=6), st.sampled_from([bytes, bytearray, memoryview]))
def test_records_are_decoded_as_they_were_encoded(
    values: list[MetadataRecord], buffer: type[bytes | bytearray | memoryview]
) -> None:
    assert [decode_record(buffer(encode_record(record))) for record in values * 2] == values * 2


@given(PARTITIONS, st.integers(0, 200), st.binary(max_size=4))
def test_damaged_partition_records_are_refused_as_the_codec_refuses_them(
    record: PartitionRecord, end: int, rest: bytes
) -> None:
    frame = encode_record(record)[:3]
    damaged = encode_record(record)[3:end] + rest
    try:
        expected = codec.decode(PartitionRecord, 2, damaged)
    except Malformed:
        with pytest.raises(Malformed):
            decode_record(frame + damaged)
    else:
        assert decode_record(frame + damaged) == expected


def test_the_partitions_of_one_topic_share_one_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[object] = []
    decode = codec.decode

    def counting(*arguments: object) -> object:
        decoded.append(arguments)
        return decode(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(codec, "decode", counting)
    values = partitions_of_one_topic(1_000)
    assert [decode_record(value) for value in encode_records(values)] == values
    assert len(decoded) <= 1, "an earlier test may have decoded such a record"


@pytest.mark.parametrize("partition_id", [2**31, -(2**31) - 1])
def test_partition_id_beyond_32_bits_is_refused(partition_id: int) -> None:
    *values, broken = partitions_of_one_topic(3)
    broken.partition_id = partition_id
    with pytest.raises(Unencodable, match="PartitionRecord"):
        encode_records([*values, broken])
