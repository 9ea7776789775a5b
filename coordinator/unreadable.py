"""Records of a shard's log that this broker cannot decode, and the ids that they block (docs/decisions/0077)."""

from collections import Counter
from typing import Final

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import LoadReport

REPORTS_MAX: Final = 100
"""Maximum unreadable records that one load of a shard reports one by one. Each becomes a line of the log."""
TYPES_MAX: Final = 20
"""Maximum unknown record types that one report names."""
TYPE_BYTES: Final = 2
"""Bytes of the record type at the start of a key."""


class UnreadableRecords:
    """The unreadable records of one shard.

    The state of an id with an unreadable record is unknown, so the shard refuses all commands for that id. A later
    readable record with the same key ends this. A record with an unreadable key belongs to no id.

    A record of an unknown type is ignored, as in Kafka: share groups and later versions write such records.
    """

    def __init__(self) -> None:
        self.count = 0
        """Unreadable records that the shard has applied since its load began."""
        self.ignored = 0
        """Records of unknown types that the shard has ignored since its load began."""
        self._blocked: dict[str, dict[bytes, int]] = {}
        """Offset of the unreadable record, by id and key."""
        self._reports: list[LoadReport] = []
        self._types: Counter[int] = Counter()

    @property
    def blocked(self) -> int:
        """Number of blocked ids."""
        return len(self._blocked)

    def __bool__(self) -> bool:
        """Return True if an id is blocked."""
        return bool(self._blocked)

    def add(self, blocked_id: str | None, key: bytes | None, offset: int, reason: Exception) -> None:
        """Note the unreadable record at `offset`. It blocks `blocked_id`; None means that its key is unreadable."""
        self.count += 1
        if blocked_id is not None and key is not None:
            self._blocked.setdefault(blocked_id, {})[key] = offset
        if len(self._reports) < REPORTS_MAX:
            effect = "its key is unreadable" if blocked_id is None else f"id {blocked_id} is blocked"
            self._reports.append(LoadReport("unreadable record", f"record at offset {offset}: {reason}; {effect}"))

    def ignore(self, key: bytes | None) -> None:
        """Note a record of an unknown type, which is the start of `key`. It blocks no id."""
        self.ignored += 1
        self._types[int.from_bytes((key or b"")[:TYPE_BYTES], "big", signed=True)] += 1

    def replaced(self, blocked_id: str, key: bytes | None) -> None:
        """Note a readable record with `key`, which replaces an unreadable one."""
        keys = self._blocked.get(blocked_id)
        if keys is not None and key is not None:
            keys.pop(key, None)
            if not keys:
                del self._blocked[blocked_id]

    def check(self, requested_id: str | None) -> None:
        """Raise Refusal(COORDINATOR_NOT_AVAILABLE) if the id is blocked."""
        keys = None if requested_id is None else self._blocked.get(requested_id)
        if keys:
            offset = next(iter(keys.values()))
            raise Refusal(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the coordinator cannot read the record of this id at offset {offset}",
            )

    def take_reports(self) -> list[LoadReport]:
        """Return the reports since the last call: one for each unreadable record, and one for all ignored records."""
        reports, self._reports = self._reports, []
        types, self._types = self._types, Counter()
        if types:
            names = ", ".join(str(number) for number in sorted(types)[:TYPES_MAX])
            reason = f"{types.total()} records of unknown types: {names}"
            reports.append(LoadReport("records ignored", reason, severe=False))
        return reports
