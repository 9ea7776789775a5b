"""Fuzz target of datagrams of the failure detector. The harness adds the authentication tag to half of them."""

from __future__ import annotations

from hashlib import blake2b

from odradek.cluster.membership.messages import (
    DATAGRAM_BYTES_MAX,
    TAG_BYTES,
    Ack,
    Codec,
    Datagram,
    GossipEntry,
    Ping,
    PingRequest,
    Rejected,
)
from odradek.cluster.membership.transitions import State
from tests.fuzz.target import Target

CODEC = Codec("MkU3OEVBNTcwNTJENDM2Qk", blake2b(b"secret", digest_size=32).digest())
GOSSIP = (GossipEntry(2, 77, 1, State.SUSPECT), GossipEntry(3, 2**64 - 1, 0, State.FAILED))


def run(data: bytes) -> int:
    """Decode a datagram with a correct tag, which must encode to the same bytes, and with the received one."""
    result = CODEC.decode(data + CODEC._tag(data))
    assert isinstance(result, Datagram | Rejected)
    if isinstance(result, Datagram):
        assert CODEC.encode(result.message, result.sent_ms, result.number) == data + CODEC._tag(data)
    assert isinstance(CODEC.decode(data), Rejected), "a datagram without a tag was accepted"
    return 0


def seeds() -> list[bytes]:
    messages = (
        Ping(1, 2, 5, 6, 7),
        Ping(1, 2, 5, 6, 7, GOSSIP),
        PingRequest(1, 2, 5, 6, 7, 3, GOSSIP),
        Ack(1, 2, 5, 6, 7, 3, 8, 9, GOSSIP),
    )
    return [CODEC.encode(message, 1_700_000_000_000, 5)[:-TAG_BYTES] for message in messages]


DATAGRAMS = Target("datagrams", run, seeds, bytes_max=DATAGRAM_BYTES_MAX + 64)
