"""The replicated core of the group coordinator: the groups and offsets of one `__consumer_offsets` partition.

The core passes each command and each record to one part: `offsets`, `classic` or `modern` (KIP-848). Requests of the
classic protocol pass through `classic_requests`. A part has two tables: command type -> decision, and key type ->
application.
"""

from collections.abc import Callable
from typing import Any, Final

from odradek.coordinator.append_errors import APPEND_ERRORS
from odradek.coordinator.group import classic_requests
from odradek.coordinator.group.classic import core as classic
from odradek.coordinator.group.modern import core as modern
from odradek.coordinator.group.offset_store import OffsetStore
from odradek.coordinator.group.offsets import core as offsets
from odradek.coordinator.group.ports import FeatureLevels, GroupConfigs, Topics
from odradek.coordinator.group.records import Entry, blocked_group, from_record, group_of
from odradek.coordinator.group.state import State
from odradek.coordinator.unreadable import UnreadableRecords
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.runtime.shard import Decision, Loaded, Marker, RetryAfter, ShardRecord

_PARTS: Final = (offsets, classic, modern)
_APPEND_ERRORS: Final = {**APPEND_ERRORS, ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR}
"""Log error -> client error, as in Kafka's CoordinatorOperationExceptionHelper.

An error that is not a key stays unchanged.
"""

Decide = Callable[[State, Any, int], Decision[Any] | RetryAfter]
Apply = Callable[[State, int, Entry, int], None]


def _merged(tables: list[dict[type[Any], Any]]) -> dict[type[Any], Any]:
    merged: dict[type[Any], Any] = {}
    for table in tables:
        duplicates = merged.keys() & table.keys()
        assert not duplicates, f"types in the tables of two parts: {duplicates}"
        merged.update(table)
    return merged


_DECISIONS: Final[dict[type[Any], Decide]] = _merged([classic_requests.DECISIONS, *(part.DECISIONS for part in _PARTS)])
_APPLICATIONS: Final[dict[type[Any], Apply]] = _merged([part.APPLICATIONS for part in _PARTS])


class GroupShard:
    """State machine of one partition of `__consumer_offsets`. It implements runtime.shard.Shard."""

    def __init__(
        self, configs: GroupConfigs, topics: Topics, features: FeatureLevels, new_id: Callable[[], str]
    ) -> None:
        """`new_id` generates member ids."""
        self.state = State(configs, topics, features, new_id, OffsetStore())
        self.unreadable = UnreadableRecords()

    def decide(self, command: Any, now_ms: int) -> Decision[Any] | RetryAfter:
        """Decide on one command, without changing the state. Raise Refusal if the command is refused."""
        if self.unreadable:
            request = getattr(command, "request", command)
            self.unreadable.check(getattr(request, "group_id", None))
        return _DECISIONS[type(command)](self.state, command, now_ms)

    def apply(self, offset: int, record: ShardRecord, leader_epoch: int) -> None:
        """Apply one record to the state. A record that cannot be decoded blocks its group."""
        try:
            self._apply(offset, record, leader_epoch)
        except Malformed as malformed:
            self.unreadable.add(blocked_group(record.key), record.key, offset, malformed)

    def _apply(self, offset: int, record: ShardRecord, leader_epoch: int) -> None:
        entry = from_record(record)
        if entry is None:
            self.unreadable.ignore(record.key)
            return
        if self.unreadable:
            self.unreadable.replaced(group_of(entry.key), record.key)
        if record.producer_id >= 0:
            offsets.apply_in_transaction(self.state, offset, entry, record.producer_id)
        else:
            _APPLICATIONS[type(entry.key)](self.state, offset, entry, leader_epoch)

    def apply_marker(self, offset: int, marker: Marker, leader_epoch: int) -> None:
        """Make the pending offsets of a transaction committed offsets, or drop them if it was aborted."""
        offsets.apply_marker(self.state, offset, marker)

    def on_committed(self, high_watermark: int) -> None:
        """Store the high watermark: all records below it are committed."""
        self.state.committed = high_watermark

    def on_loaded(self, leader_epoch: int, now_ms: int) -> Loaded:
        """Start the timers of members, and of the expiration of offsets, after the replay of the log."""
        self.state.leader_epoch = leader_epoch
        loaded = [part.on_loaded(self.state, now_ms) for part in _PARTS]
        return Loaded(
            timers=tuple(timer for part in loaded for timer in part.timers),
            effects=tuple(effect for part in loaded for effect in part.effects),
        )

    def append_refusal(self, error: ErrorCode) -> ErrorCode:
        """Return the client's error for a batch that the log refused, or did not commit in time."""
        return _APPEND_ERRORS.get(error, error)
