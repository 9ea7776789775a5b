"""The replicated core of the group coordinator: the groups of one `__consumer_offsets` partition.

It hands each command and each record to the part that knows it: `offsets`, `classic` or `modern` (KIP-848), and requests of the
classic protocol to `classic_requests`. A part is a table of decisions by type of command and of applications by type of key.
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
from odradek.coordinator.group.records import Entry, from_record
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode
from odradek.runtime.shard import Again, Decision, Loaded, Marker, ShardRecord

_PARTS: Final = (offsets, classic, modern)
_APPEND_ERRORS: Final = {**APPEND_ERRORS, ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR}
"""Error of the log -> error for the client, as in Kafka's CoordinatorOperationExceptionHelper. Other errors are not translated."""

Decide = Callable[[State, Any, int], Decision[Any] | Again]
Apply = Callable[[State, int, Entry, int], None]


def _joined(tables: list[dict[type[Any], Any]]) -> dict[type[Any], Any]:
    table: dict[type[Any], Any] = {}
    for part in tables:
        twice = table.keys() & part.keys()
        assert not twice, f"decided twice: {twice}"
        table.update(part)
    return table


_DECISIONS: Final[dict[type[Any], Decide]] = _joined([classic_requests.DECISIONS, *(part.DECISIONS for part in _PARTS)])
_APPLICATIONS: Final[dict[type[Any], Apply]] = _joined([part.APPLICATIONS for part in _PARTS])


class GroupShard:
    """Implements runtime.shard.Shard for `__consumer_offsets`."""

    def __init__(
        self, configs: GroupConfigs, topics: Topics, features: FeatureLevels, new_id: Callable[[], str]
    ) -> None:
        """`new_id` makes the ids of members."""
        self.state = State(configs, topics, features, new_id, OffsetStore())

    def decide(self, command: Any, now_ms: int) -> Decision[Any] | Again:
        """Judge one command. Raises Refusal; changes nothing that is in the log."""
        return _DECISIONS[type(command)](self.state, command, now_ms)

    def apply(self, offset: int, record: ShardRecord, leader_epoch: int) -> None:
        """Take one record into the state. Raises Malformed for one without a key or with a broken body."""
        entry = from_record(record)
        if entry is None:
            self.state.skipped_records += 1
            return
        if record.producer_id >= 0:
            offsets.apply_in_transaction(self.state, offset, entry, record.producer_id)
        else:
            _APPLICATIONS[type(entry.key)](self.state, offset, entry, leader_epoch)

    def apply_marker(self, offset: int, marker: Marker, leader_epoch: int) -> None:
        """Offsets of the transaction become the group's, or are forgotten."""
        offsets.apply_marker(self.state, offset, marker)

    def on_committed(self, high_watermark: int) -> None:
        """Everything below is committed."""
        self.state.committed = high_watermark

    def on_loaded(self, leader_epoch: int, now_ms: int) -> Loaded:
        """The state is what the log says: timers of members and sweeps begin."""
        self.state.leader_epoch = leader_epoch
        loaded = [part.on_loaded(self.state, now_ms) for part in _PARTS]
        return Loaded(
            timers=tuple(timer for part in loaded for timer in part.timers),
            effects=tuple(effect for part in loaded for effect in part.effects),
        )

    def append_refusal(self, error: ErrorCode) -> ErrorCode:
        """What a client is told when the log refuses a batch, or has not committed it in time."""
        return _APPEND_ERRORS.get(error, error)
