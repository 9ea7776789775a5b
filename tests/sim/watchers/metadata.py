"""Follow the committed records of the metadata log by the checkers' own rule: durable on a majority of voters, in the
newest epoch.

Each change of a partition is checked when it is committed: a new leader holds all committed records (I11), and an epoch
has one leader (I12).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tests.sim.checkers.metadata_log import Change, MetadataModel
from tests.sim.world import METADATA

if TYPE_CHECKING:
    from tests.sim.checkers.replica_log import ReplicaLog
    from tests.sim.watchers.host_logs import HostLogs

PLACE: Final = (METADATA, 0)


class MetadataWatch:
    """Committed state of the metadata log. `changed` receives every committed change, in order."""

    def __init__(self, hosts: Mapping[int, "HostLogs"], voters: int, changed: Callable[[Change], None]) -> None:
        self.model = MetadataModel()
        self.violations: list[str] = []
        self._hosts = hosts
        self._majority = voters // 2 + 1
        self._voters = voters
        self._changed = changed
        self._applied = 0

    def refresh(self) -> None:
        """Apply the records that have become committed."""
        logs = [
            (log, host.durable.get(PLACE, 0))
            for number, host in self._hosts.items()
            if number <= self._voters and (log := host.logs.get(PLACE)) is not None and log.placed
        ]
        if len(logs) < self._majority:
            return
        reference = max((log for log, _ in logs), key=lambda log: (log.placed[-1].batch.leader_epoch, log.end))
        for _ in range(self._committed_after(reference, logs)):
            batch = reference.find(self._applied)
            assert batch is not None
            for change in self.model.apply(batch):
                self._changed(change)
            self._applied = batch.last_offset + 1

    def _committed_after(self, reference: "ReplicaLog", logs: "list[tuple[ReplicaLog, int]]") -> int:
        """Return the number of batches of the reference log that are committed and not applied."""
        newest = reference.placed[-1].batch.leader_epoch
        committed = count = 0
        offset = self._applied
        while (batch := reference.find(offset)) is not None:
            holders = 0
            for log, durable in logs:
                held = log.find(offset)
                if held is not None and held.identity == batch.identity and durable > batch.last_offset:
                    holders += 1
            if holders < self._majority:
                break
            count += 1
            if batch.leader_epoch == newest:
                committed = count
            offset = batch.last_offset + 1
        return committed
