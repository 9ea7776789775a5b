"""A member of a classic group."""

from collections.abc import Iterable

from odradek.coordinator.group.memory_accounting import MEMBER_BYTES, text_bytes
from odradek.frozen import frozen_dataclass
from odradek.protocol.messages.join_group import JoinGroupRequestProtocol

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference. Names are unique."""


def protocols_of(wire: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """Return the protocols of a JoinGroup request. If a name occurs twice, its first entry counts."""
    protocols: dict[str, bytes] = {}
    for protocol in wire:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(protocols.items())


def metadata_bytes(protocols: Protocols) -> int:
    return sum(text_bytes(name) + len(metadata) for name, metadata in protocols)


@frozen_dataclass(frozen=True, slots=True)
class Member:
    """One member, as an immutable value that each change replaces.

    `join_waiter` and `sync_waiter` are the waiters of its JoinGroup and SyncGroup requests. `is_new` is True until
    the end of its first join phase.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_waiter: int | None = None
    sync_waiter: int | None = None
    is_new: bool = False

    @property
    def size(self) -> int:
        """Estimated bytes that the member takes in memory."""
        ids = text_bytes(self.member_id, self.instance_id, self.client_id, self.client_host)
        return MEMBER_BYTES + ids + self.metadata_bytes

    @property
    def metadata_bytes(self) -> int:
        """Bytes of the member's protocol metadata and assignment."""
        return metadata_bytes(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata for a protocol that the member supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    @property
    def awaits_response(self) -> bool:
        """Return True if a request of the member waits, so that its session must not expire.

        A new member does not count: it has no member id yet, and cannot send heartbeats.
        """
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)
