"""The datagrams of the failure detector: values, and their bytes on the wire.

    version u8 | kind u8 | sent i64                                                         the head; when it was sent: ms, the source's wall clock
    source u32 | target u32 | life u64 | counter u32 | sequence u32                         life and counter are the source's
    subject u32                                                                             PING_REQUEST: whom to ping
    subject u32 | life u64 | counter u32                                                    ACK: who has answered, and as what
    count u8 | count * (node u32 | life u64 | counter u32 | state u8)                       rumours
    tag, 16 bytes                                                                           BLAKE2b of all before it

Big endian. The key of the tag is made of the cluster's id: it keeps the datagrams of another cluster and garbage out, not an
attacker who knows the id. `decode` never raises on content.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from hashlib import blake2b
from typing import Final, TypeAlias

from odradek.cluster.membership.transitions import State

VERSION: Final = 2
DATAGRAM_BYTES_MAX: Final = 1_400
"""No datagram is longer, so that none is cut to pieces on the way."""
TAG_BYTES: Final = 16
UNKNOWN_LIFE: Final = 0
"""The life of a node that has not registered as a broker, as others know it."""

_HEAD: Final = struct.Struct(">BBqIIQII")
_SUBJECT: Final = struct.Struct(">I")
_ANSWERED: Final = struct.Struct(">IQI")
_RUMOUR: Final = struct.Struct(">IQIB")
_STATES: Final = (State.ALIVE, State.SUSPECT, State.DEAD)

RUMOURS_MAX: Final = min(255, (DATAGRAM_BYTES_MAX - _HEAD.size - _ANSWERED.size - 1 - TAG_BYTES) // _RUMOUR.size)


class Kind(IntEnum):
    PING = 1
    ACK = 2
    PING_REQUEST = 3


class Rejected(Enum):
    """Why a datagram was dropped unread."""

    SIZE = "wrong size"
    VERSION = "unknown version"
    FOREIGN = "not of this cluster"
    CONTENT = "cannot be understood"


@dataclass(frozen=True, slots=True)
class Rumour:
    """`life` and `counter` say which incarnation is meant: `life` is 64 bits of the process's own id (UNKNOWN_LIFE where that is
    not known), and the process itself raises `counter` to refute what is said of it.
    """

    node_id: int
    life: int
    counter: int
    state: State


@dataclass(frozen=True, slots=True)
class Ping:
    source: int
    target: int
    life: int
    counter: int
    sequence: int
    rumours: tuple[Rumour, ...] = ()


@dataclass(frozen=True, slots=True)
class PingRequest:
    """Ping `subject` for me, and tell me when it answers."""

    source: int
    target: int
    life: int
    counter: int
    sequence: int
    subject: int
    rumours: tuple[Rumour, ...] = ()


@dataclass(frozen=True, slots=True)
class Ack:
    """`subject` lives: the source itself, or the one that `target` has asked it to ping. `sequence` is the target's."""

    source: int
    target: int
    life: int
    counter: int
    sequence: int
    subject: int
    subject_life: int
    subject_counter: int
    rumours: tuple[Rumour, ...] = ()


Message: TypeAlias = Ping | PingRequest | Ack


@dataclass(frozen=True, slots=True)
class Datagram:
    """What has arrived. `sent_ms` is the wall clock of the source, which may be wrong."""

    sent_ms: int
    message: Message


_KINDS: Final[dict[type[Message], Kind]] = {Ping: Kind.PING, PingRequest: Kind.PING_REQUEST, Ack: Kind.ACK}


class Codec:
    """Messages to datagrams and back, for one cluster."""

    def __init__(self, cluster_id: str) -> None:
        self._keyed = blake2b(
            key=blake2b(cluster_id.encode(), digest_size=32).digest(), digest_size=TAG_BYTES, person=b"odradek-members"
        )

    def encode(self, message: Message, sent_ms: int) -> bytes:
        kind = _KINDS[type(message)]
        parts = [
            _HEAD.pack(
                VERSION,
                kind,
                sent_ms,
                message.source,
                message.target,
                message.life,
                message.counter,
                message.sequence,
            )
        ]
        if isinstance(message, PingRequest):
            parts.append(_SUBJECT.pack(message.subject))
        elif isinstance(message, Ack):
            parts.append(_ANSWERED.pack(message.subject, message.subject_life, message.subject_counter))
        assert len(message.rumours) <= RUMOURS_MAX
        parts.append(bytes((len(message.rumours),)))
        parts += [
            _RUMOUR.pack(rumour.node_id, rumour.life, rumour.counter, _STATES.index(rumour.state))
            for rumour in message.rumours
        ]
        body = b"".join(parts)
        return body + self._tag(body)

    def decode(self, data: bytes) -> Datagram | Rejected:
        if not _HEAD.size + 1 + TAG_BYTES <= len(data) <= DATAGRAM_BYTES_MAX:
            return Rejected.SIZE
        if data[0] != VERSION:
            return Rejected.VERSION
        body, tag = data[:-TAG_BYTES], data[-TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(body)):
            return Rejected.FOREIGN
        try:
            return _parse(body)
        except (struct.error, IndexError, ValueError):
            return Rejected.CONTENT

    def _tag(self, body: bytes) -> bytes:
        digest = self._keyed.copy()
        digest.update(body)
        return digest.digest()


def _parse(body: bytes) -> Datagram:
    _, kind, sent_ms, source, target, life, counter, sequence = _HEAD.unpack_from(body)
    offset = _HEAD.size
    message: Message
    if kind == Kind.PING:
        message = Ping(source, target, life, counter, sequence, _rumours(body, offset))
    elif kind == Kind.PING_REQUEST:
        (subject,) = _SUBJECT.unpack_from(body, offset)
        rumours = _rumours(body, offset + _SUBJECT.size)
        message = PingRequest(source, target, life, counter, sequence, subject, rumours)
    elif kind == Kind.ACK:
        subject, its_life, its_counter = _ANSWERED.unpack_from(body, offset)
        rumours = _rumours(body, offset + _ANSWERED.size)
        message = Ack(source, target, life, counter, sequence, subject, its_life, its_counter, rumours)
    else:
        raise ValueError(kind)
    return Datagram(sent_ms, message)


def _rumours(body: bytes, offset: int) -> tuple[Rumour, ...]:
    """The rumours from `offset` to the end, which must be exactly there."""
    count = body[offset]
    start = offset + 1
    if len(body) - start != count * _RUMOUR.size:
        raise ValueError(count)
    return tuple(
        Rumour(node_id, life, counter, _STATES[state])
        for node_id, life, counter, state in _RUMOUR.iter_unpack(body[start:])
    )
