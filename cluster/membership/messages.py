"""The datagrams of the failure detector: values, and their encoding.

    version u8 | kind u8 | sent i64 | number u64                       `sent`: the sender's wall clock, milliseconds
    source u32 | target u32 | incarnation u64 | counter u32 | sequence u64     incarnation and counter of the source
    subject u32                                                        PING_REQUEST: the node to ping
    subject u32 | incarnation u64 | counter u32                        ACK: the node that has acknowledged
    count u8 | count * (node u32 | incarnation u64 | counter u32 | state u8)   gossip
    tag, 16 bytes                                                      start of the HMAC-SHA-256 of all bytes before it

Integers are big endian. The process increases `number` with each datagram. The key of the tag is derived from the
cluster id and the cluster secret. Without a secret, the tag keeps out datagrams of other clusters and invalid
datagrams, but not an attacker with the cluster id. `odradek.cluster.membership.admission` drops recorded datagrams.
`decode` never raises an error for invalid bytes.
"""

from __future__ import annotations

import hmac
import struct
from enum import Enum, IntEnum
from hashlib import sha256
from typing import Final, TypeAlias

from odradek.cluster.membership.transitions import State
from odradek.frozen import frozen_dataclass

VERSION: Final = 3
DATAGRAM_BYTES_MAX: Final = 1_400
"""Maximum bytes of a datagram. It fits into one Ethernet frame, so IP does not fragment it."""
TAG_BYTES: Final = 16
PURPOSE: Final = b"odradek-members"
"""Start of the input of each tag. The key has no other use."""
UNKNOWN_INCARNATION: Final = 0
"""The incarnation of a node that has not registered as a broker."""

_HEAD: Final = struct.Struct(">BBqQIIQIQ")
_SUBJECT: Final = struct.Struct(">I")
_ACKNOWLEDGED: Final = struct.Struct(">IQI")
_GOSSIP_ENTRY: Final = struct.Struct(">IQIB")
_STATES: Final = (State.ALIVE, State.SUSPECT, State.FAILED)

GOSSIP_ENTRIES_MAX: Final = min(
    255, (DATAGRAM_BYTES_MAX - _HEAD.size - _ACKNOWLEDGED.size - 1 - TAG_BYTES) // _GOSSIP_ENTRY.size
)


class Kind(IntEnum):
    PING = 1
    ACK = 2
    PING_REQUEST = 3


class Rejected(Enum):
    """The reason why a datagram was dropped."""

    SIZE = "wrong size"
    VERSION = "unknown version"
    FOREIGN = "another cluster or cluster secret"
    CONTENT = "invalid content"
    MISDIRECTED = "for another node"
    ADDRESS = "not from an address of the sender"
    REPLAYED = "received before"
    EARLIER = "of an ended process"
    UNVERIFIED = "of an unverified process"


@frozen_dataclass(frozen=True, slots=True)
class GossipEntry:
    """The state of one member, as a node sees it.

    `incarnation`: 64 bits of the incarnation id of the process, or UNKNOWN_INCARNATION. `counter`: the process
    increases it to refute a suspicion of itself (SWIM's incarnation number).
    """

    node_id: int
    incarnation: int
    counter: int
    state: State


@frozen_dataclass(frozen=True, slots=True)
class Ping:
    source: int
    target: int
    incarnation: int
    counter: int
    sequence: int
    gossip: tuple[GossipEntry, ...] = ()


@frozen_dataclass(frozen=True, slots=True)
class PingRequest:
    """Request that `target` pings `subject` and relays the acknowledgment to `source`."""

    source: int
    target: int
    incarnation: int
    counter: int
    sequence: int
    subject: int
    gossip: tuple[GossipEntry, ...] = ()


@frozen_dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledgment of a ping of `subject`: the source itself, or a node that `target` requested to ping.

    `sequence` is the number of the target's ping or ping request.
    """

    source: int
    target: int
    incarnation: int
    counter: int
    sequence: int
    subject: int
    subject_incarnation: int
    subject_counter: int
    gossip: tuple[GossipEntry, ...] = ()


Message: TypeAlias = Ping | PingRequest | Ack


@frozen_dataclass(frozen=True, slots=True)
class Datagram:
    """A decoded datagram. `sent_ms` is the wall clock of the source, which may be wrong.

    `number`: the process of the source increases it with each datagram, from a random number on.
    """

    sent_ms: int
    number: int
    message: Message


_KINDS: Final[dict[type[Message], Kind]] = {Ping: Kind.PING, PingRequest: Kind.PING_REQUEST, Ack: Kind.ACK}


class Codec:
    """Encode and decode the datagrams of one cluster."""

    def __init__(self, cluster_id: str, secret_key: bytes = b"", *accepted_keys: bytes) -> None:
        """`secret_key`: a key derived from the cluster secret; empty without a secret.

        Datagrams with `accepted_keys` are accepted, too.
        """
        self._keyed = tuple(
            hmac.new(hmac.digest(key, cluster_id.encode(), sha256), PURPOSE, sha256)
            for key in (secret_key, *accepted_keys)
        )

    def encode(self, message: Message, sent_ms: int, number: int) -> bytes:
        kind = _KINDS[type(message)]
        parts = [
            _HEAD.pack(
                VERSION,
                kind,
                sent_ms,
                number,
                message.source,
                message.target,
                message.incarnation,
                message.counter,
                message.sequence,
            )
        ]
        if isinstance(message, PingRequest):
            parts.append(_SUBJECT.pack(message.subject))
        elif isinstance(message, Ack):
            parts.append(_ACKNOWLEDGED.pack(message.subject, message.subject_incarnation, message.subject_counter))
        assert len(message.gossip) <= GOSSIP_ENTRIES_MAX
        parts.append(bytes((len(message.gossip),)))
        parts += [
            _GOSSIP_ENTRY.pack(entry.node_id, entry.incarnation, entry.counter, _STATES.index(entry.state))
            for entry in message.gossip
        ]
        body = b"".join(parts)
        return body + self._tag(body)

    def decode(self, data: bytes) -> Datagram | Rejected:
        if not _HEAD.size + 1 + TAG_BYTES <= len(data) <= DATAGRAM_BYTES_MAX:
            return Rejected.SIZE
        if data[0] != VERSION:
            return Rejected.VERSION
        body, tag = data[:-TAG_BYTES], data[-TAG_BYTES:]
        if not any(hmac.compare_digest(tag, _tag_of(keyed, body)) for keyed in self._keyed):
            return Rejected.FOREIGN
        try:
            return _parse(body)
        except (struct.error, IndexError, ValueError):
            return Rejected.CONTENT

    def _tag(self, body: bytes) -> bytes:
        return _tag_of(self._keyed[0], body)


def _tag_of(keyed: hmac.HMAC, body: bytes) -> bytes:
    """Return the first TAG_BYTES bytes of the HMAC-SHA-256 (RFC 2104, section 5: truncated output)."""
    digest = keyed.copy()
    digest.update(body)
    return digest.digest()[:TAG_BYTES]


def _parse(body: bytes) -> Datagram:
    _, kind, sent_ms, number, source, target, incarnation, counter, sequence = _HEAD.unpack_from(body)
    offset = _HEAD.size
    message: Message
    if kind == Kind.PING:
        message = Ping(source, target, incarnation, counter, sequence, _parse_gossip(body, offset))
    elif kind == Kind.PING_REQUEST:
        (subject,) = _SUBJECT.unpack_from(body, offset)
        gossip = _parse_gossip(body, offset + _SUBJECT.size)
        message = PingRequest(source, target, incarnation, counter, sequence, subject, gossip)
    elif kind == Kind.ACK:
        subject, its_incarnation, its_counter = _ACKNOWLEDGED.unpack_from(body, offset)
        gossip = _parse_gossip(body, offset + _ACKNOWLEDGED.size)
        message = Ack(source, target, incarnation, counter, sequence, subject, its_incarnation, its_counter, gossip)
    else:
        raise ValueError(kind)
    return Datagram(sent_ms, number, message)


def _parse_gossip(body: bytes, offset: int) -> tuple[GossipEntry, ...]:
    """Decode the gossip between `offset` and the end. Raise ValueError if its size does not match its count."""
    count = body[offset]
    start = offset + 1
    if len(body) - start != count * _GOSSIP_ENTRY.size:
        raise ValueError(count)
    return tuple(
        GossipEntry(node_id, incarnation, counter, _STATES[state])
        for node_id, incarnation, counter, state in _GOSSIP_ENTRY.iter_unpack(body[start:])
    )
