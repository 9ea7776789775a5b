"""A member of a classic group: a value, replaced whole whenever something about it changes."""

from collections.abc import Iterable
from dataclasses import dataclass

from odradek.coordinator.group.memory_accounting import MEMBER_BYTES, text_bytes
from odradek.protocol.messages.join_group import JoinGroupRequestProtocol

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the order in which a member prefers them; a name stands there once."""


def protocols_of(wire: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The first of each name."""
    found: dict[str, bytes] = {}
    for protocol in wire:
        found.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(found.items())


def metadata_bytes(protocols: Protocols) -> int:
    return sum(text_bytes(name) + len(metadata) for name, metadata in protocols)


@dataclass(frozen=True, slots=True)
class Member:
    """One member: a value, replaced whole whenever something about it changes. `joining` and `syncing` are the waiters of its JoinGroup and SyncGroup; `is_new` until the
    first phase that it takes part in is over.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    is_new: bool = False

    @property
    def size(self) -> int:
        """What it takes in memory, about."""
        ids = text_bytes(self.member_id, self.instance_id, self.client_id, self.client_host)
        return MEMBER_BYTES + ids + self.metadata_bytes

    @property
    def metadata_bytes(self) -> int:
        """What it has said, and was told."""
        return metadata_bytes(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """What it says under this protocol, which it supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    @property
    def awaits_response(self) -> bool:
        """It waits for us, so its silence is not its fault. A new one has no id yet to be heard of by: it is not spared."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)
