"""The next state of one partition: ISR, leader, ELR, and the end of a reassignment (KIP-455, KIP-841, KIP-966).

Every change of a partition goes through `next_change`, which ensures data safety: a leader is in the ISR or in the ELR,
unless an unclean election is allowed. The ELR has the replicas that were in the ISR when it was last large enough to
acknowledge.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from odradek.cluster.metadata.image import RECOVERING, PartitionImage
from odradek.cluster.metadata.partition_change import NO_LEADER_CHANGE, NO_RECOVERY_CHANGE
from odradek.cluster.metadata.records import PartitionChangeRecord
from odradek.frozen import frozen_dataclass
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID


class Election(Enum):
    """The goal of an election."""

    PREFERRED = "preferred"
    """Elect the first replica of the assignment, if it can lead."""
    ONLINE = "online"
    """Keep the leader, if it can lead."""
    UNCLEAN = "unclean"
    """Elect a replica that may lack records, if no other one can lead."""


@frozen_dataclass(frozen=True, slots=True)
class Rules:
    """The conditions of one decision about one partition."""

    can_lead: Callable[[int], bool]
    """The broker is active, and has registered the directory of its replica."""
    is_alive: Callable[[int], bool]
    """The broker is active."""
    default_directory: Callable[[int], UUID]
    """The directory in which the broker creates a new replica."""
    min_isr: int
    """`min.insync.replicas` of the topic."""
    elr: bool
    """Eligible leader replicas (KIP-966) are enabled."""
    election: Election = Election.ONLINE
    unclean_shutdown: tuple[int, ...] = ()
    """Brokers that may have lost records."""


@frozen_dataclass(frozen=True, slots=True)
class Elected:
    """Elected leader. `unclean`: it may lack acknowledged records. `empty`: it has lost all its records."""

    leader: int
    unclean: bool = False
    empty: bool = False


def next_change(
    topic_id: UUID, current: PartitionImage, target: PartitionImage, rules: Rules
) -> PartitionChangeRecord | None:
    """Return the record that leads from `current` to `target`, as far as the rules allow it. None: nothing changes.

    `target` determines replicas, adding and removing replicas, ISR, directories and recovery state. Leader, ELR and
    last known ELR follow from them. Without ELR, the ISR keeps its last member, which has the acknowledged records.
    """
    target = _without_done_reassignment(target)
    elr = _eligible(current, target, rules)
    elected = _elect(current, target, elr, rules)
    isr = target.isr
    recovery = target.leader_recovery_state
    directories = target.directories
    if elected.unclean:
        isr = (elected.leader,)
        elr = ()
        recovery = RECOVERING
        if elected.empty:
            directories = tuple(
                rules.default_directory(replica) if replica == elected.leader else directory
                for replica, directory in zip(target.replicas, directories, strict=True)
            )
    elif not isr and elected.leader != NO_LEADER:
        isr = (elected.leader,)
        elr = tuple(replica for replica in elr if replica != elected.leader and rules.min_isr > len(isr))
    elif not isr and not rules.elr:
        isr = current.isr
    record = PartitionChangeRecord(partition_id=current.index, topic_id=topic_id)
    # A removed replica must notice that its leader epoch is over, even if the leader stays the same.
    lost_replica = any(replica not in target.replicas for replica in current.replicas)
    if elected.leader != current.leader or lost_replica:
        record.leader = elected.leader
    if isr != current.isr:
        record.isr = list(isr)
    if recovery != current.leader_recovery_state:
        record.leader_recovery_state = recovery
    if directories != current.directories:
        record.directories = list(directories)
    _set_assignment(record, current, target)
    _set_eligible(record, current, elr, _last_known(current, isr, elected.leader, rules))
    return record if _has_changes(record) else None


# ---- reassignment ---------------------------------------------------------------------------------------------------


def _without_done_reassignment(target: PartitionImage) -> PartitionImage:
    """Complete the reassignment if all replicas that stay are in sync."""
    removing = target.removing_replicas
    if not removing and not target.adding_replicas:
        return target
    replicas = tuple(replica for replica in target.replicas if replica not in removing)
    isr = tuple(replica for replica in target.isr if replica not in removing)
    if not isr or not replicas or any(replica not in isr for replica in replicas):
        return target
    known = dict(zip(target.replicas, target.directories, strict=True))
    return replace(
        target,
        replicas=replicas,
        isr=isr,
        directories=tuple(known[replica] for replica in replicas),
        removing_replicas=(),
        adding_replicas=(),
    )


# ---- eligible leader replicas ---------------------------------------------------------------------------------------


def _eligible(current: PartitionImage, target: PartitionImage, rules: Rules) -> tuple[int, ...]:
    """Return the ELR: the replicas that left the ISR while it was too small to acknowledge.

    The high watermark has not advanced since then, so they have all committed records.
    """
    if not rules.elr or len(target.isr) >= rules.min_isr:
        return ()
    candidates = dict.fromkeys((*current.elr, *current.isr))
    return tuple(
        sorted(
            replica
            for replica in candidates
            if replica not in target.isr and replica in target.replicas and replica not in rules.unclean_shutdown
        )
    )


def _last_known(current: PartitionImage, isr: tuple[int, ...], leader: int, rules: Rules) -> tuple[int, ...]:
    """Return the leader at the time when the ISR became empty, until there is a leader again."""
    if not rules.elr or leader != NO_LEADER:
        return ()
    if isr or current.last_known_elr:
        return current.last_known_elr
    if current.leader != NO_LEADER:
        return (current.leader,)
    return current.isr if len(current.isr) == 1 else ()


# ---- leaders --------------------------------------------------------------------------------------------------------


def _elect(current: PartitionImage, target: PartitionImage, elr: tuple[int, ...], rules: Rules) -> Elected:
    members = target.isr or elr
    # Only the preferred leader replaces a leader that can continue.
    first = target.replicas[:1] if rules.election is Election.PREFERRED else ()
    for replica in (*first, current.leader, *target.replicas):
        if replica in members and rules.can_lead(replica):
            return Elected(replica)
    if rules.elr and not members and len(current.last_known_elr) == 1:
        last = current.last_known_elr[0]
        if last in target.replicas and rules.can_lead(last):
            return Elected(last, unclean=True)
    if rules.election is Election.UNCLEAN:
        for can_lead in (rules.can_lead, rules.is_alive):
            found = next((replica for replica in target.replicas if can_lead(replica)), None)
            if found is not None:
                return Elected(found, unclean=True, empty=not rules.can_lead(found))
    return Elected(NO_LEADER)


# ---- the record -----------------------------------------------------------------------------------------------------


def _set_assignment(record: PartitionChangeRecord, current: PartitionImage, target: PartitionImage) -> None:
    if target.replicas != current.replicas:
        record.replicas = list(target.replicas)
    if target.removing_replicas != current.removing_replicas:
        record.removing_replicas = list(target.removing_replicas)
    if target.adding_replicas != current.adding_replicas:
        record.adding_replicas = list(target.adding_replicas)


def _set_eligible(
    record: PartitionChangeRecord, current: PartitionImage, elr: tuple[int, ...], last_known: tuple[int, ...]
) -> None:
    if elr != current.elr:
        record.eligible_leader_replicas = list(elr)
    if last_known != current.last_known_elr:
        record.last_known_elr = list(last_known)


def _has_changes(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != NO_LEADER_CHANGE
        or record.leader_recovery_state != NO_RECOVERY_CHANGE
        or any(
            part is not None
            for part in (
                record.isr,
                record.replicas,
                record.directories,
                record.removing_replicas,
                record.adding_replicas,
                record.eligible_leader_replicas,
                record.last_known_elr,
            )
        )
    )
