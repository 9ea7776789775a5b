"""The effect of a PartitionChangeRecord on a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.metadata.image import DIRECTORY_UNASSIGNED, PartitionImage

if TYPE_CHECKING:
    from odradek.cluster.metadata.records import PartitionChangeRecord

NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


def changed_partition(old: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return `old` after `record`.

    Absent fields stay unchanged. A leader, even the same one, starts a new leader epoch.
    """
    replicas = old.replicas if record.replicas is None else tuple(record.replicas)
    directories = old.directories
    if record.directories is not None:
        directories = tuple(record.directories)
    elif replicas != old.replicas:
        known = dict(zip(old.replicas, old.directories, strict=True))
        directories = tuple(known.get(replica, DIRECTORY_UNASSIGNED) for replica in replicas)
    leads = record.leader != NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    return PartitionImage(
        old.index,
        replicas,
        _or_old(record.isr, old.isr),
        record.leader if leads else old.leader,
        old.leader_epoch + 1 if leads else old.leader_epoch,
        old.partition_epoch + 1,
        directories,
        _or_old(record.removing_replicas, old.removing_replicas),
        _or_old(record.adding_replicas, old.adding_replicas),
        old.leader_recovery_state if recovery == NO_RECOVERY_CHANGE else recovery,
        _or_old(record.eligible_leader_replicas, old.elr),
        _or_old(record.last_known_elr, old.last_known_elr),
    )


def _or_old(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)
