"""Datagrams of the failure detector: encoding, decoding, and rejected bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.membership.messages import (
    DATAGRAM_BYTES_MAX,
    GOSSIP_ENTRIES_MAX,
    TAG_BYTES,
    Ack,
    Codec,
    Datagram,
    GossipEntry,
    Message,
    Ping,
    PingRequest,
    Rejected,
)
from odradek.cluster.membership.transitions import TRANSITIONS, Event, State
from odradek.runtime.machine import BUG

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
GOSSIP = st.lists(st.builds(GossipEntry, U32, U64, U32, st.sampled_from(State)), max_size=GOSSIP_ENTRIES_MAX).map(tuple)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Ping, U32, U32, U64, U32, U64, GOSSIP),
    st.builds(PingRequest, U32, U32, U64, U32, U64, U32, GOSSIP),
    st.builds(Ack, U32, U32, U64, U32, U64, U32, U64, U32, GOSSIP),
)
TIMES = st.integers(-(2**63), 2**63 - 1)
CODEC = Codec("MkU3OEVBNTcwNTJENDM2Qk")
FULL = Ack(1, 2, 3, 4, 5, 6, 7, 8, tuple(GossipEntry(node, 1, 2, State.FAILED) for node in range(GOSSIP_ENTRIES_MAX)))


@given(MESSAGES, TIMES, U64)
def test_encoded_message_is_decoded_unchanged(message: Message, sent_ms: int, number: int) -> None:
    data = CODEC.encode(message, sent_ms, number)
    assert len(data) <= DATAGRAM_BYTES_MAX
    assert CODEC.decode(data) == Datagram(sent_ms, number, message)


def test_longest_datagram_is_just_below_the_limit() -> None:
    assert DATAGRAM_BYTES_MAX - 20 < len(CODEC.encode(FULL, 0, 0)) <= DATAGRAM_BYTES_MAX


def test_bytes_of_a_ping() -> None:
    data = CODEC.encode(Ping(1, 2, 3, 4, 5, (GossipEntry(6, 7, 8, State.SUSPECT),)), 9, 10)
    head = "03 01 0000000000000009 000000000000000a 00000001 00000002 0000000000000003 00000004 0000000000000005"
    assert data[:-TAG_BYTES].hex() == (head + "01 00000006 0000000000000007 00000008 01").replace(" ", "")


def test_datagram_of_a_node_with_another_secret_is_rejected() -> None:
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"
    codecs = [CODEC, Codec(cluster_id, b"a" * 32), Codec(cluster_id, b"b" * 32)]
    ping = Ping(1, 2, 3, 4, 5)
    for sender in codecs:
        for receiver in codecs:
            expected = Datagram(0, 7, ping) if sender is receiver else Rejected.FOREIGN
            assert receiver.decode(sender.encode(ping, 0, 7)) == expected


def test_datagram_of_another_cluster_is_rejected() -> None:
    assert Codec("another").decode(CODEC.encode(Ping(1, 2, 3, 4, 5), 0, 0)) is Rejected.FOREIGN


@given(st.binary(max_size=DATAGRAM_BYTES_MAX + 10))
def test_random_bytes_are_rejected(data: bytes) -> None:
    assert isinstance(CODEC.decode(data), Rejected)


@given(st.binary(max_size=DATAGRAM_BYTES_MAX - TAG_BYTES))
def test_random_bytes_with_a_valid_tag_are_decoded_or_rejected(body: bytes) -> None:
    """A node that knows the cluster id can make the tag. The bytes before the tag can be anything."""
    body = b"\x03" + body[1:]
    decoded = CODEC.decode(body + CODEC._tag(body))
    if not isinstance(decoded, Rejected):
        assert CODEC.encode(decoded.message, decoded.sent_ms, decoded.number) == body + CODEC._tag(body)


@given(MESSAGES, st.data())
def test_changed_byte_is_detected(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(CODEC.encode(message, 0, 0))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= data.draw(st.integers(1, 255))
    assert isinstance(CODEC.decode(bytes(encoded)), Rejected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda body: b"\x01" + body[1:], Rejected.VERSION),
        (lambda body: body[:1] + b"\x09" + body[2:], Rejected.CONTENT),
        (lambda body: body[:-1] + b"\x05", Rejected.CONTENT),
        (lambda body: body[:-1] + b"\x00" + body, Rejected.CONTENT),
        (lambda body: body[:-1], Rejected.SIZE),
        (lambda body: body + bytes(DATAGRAM_BYTES_MAX), Rejected.SIZE),
        (lambda body: body[:-1] + b"\x01" + struct.pack(">IQIB", 1, 1, 1, 3), Rejected.CONTENT),
    ],
    ids=["version", "kind", "count", "more than the count says", "too short", "too long", "state"],
)
def test_invalid_content_is_rejected_with_its_reason(change: object, reason: Rejected) -> None:
    assert callable(change)
    body = change(CODEC.encode(Ping(1, 2, 3, 4, 5), 0, 0)[:-TAG_BYTES])
    assert CODEC.decode(body + CODEC._tag(body)) is reason


def test_documented_table_matches_the_transitions() -> None:
    document = (Path(__file__).resolve().parents[4] / "docs" / "membership.md").read_text()
    rows = []
    for event in Event:
        outcomes = [TRANSITIONS.cells[state, event] for state in State]
        cells = ("-" if outcome is BUG else outcome.value for outcome in outcomes)
        rows.append(f"| {event.value} | " + " | ".join(cells) + " |")
    assert [line for line in document.splitlines() if line.count("|") == 5][2:][: len(rows)] == rows
