"""Leader elections: after changes of brokers, on request (ElectLeaders), and by jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.configs import allows_unclean_election, min_in_sync
from odradek.cluster.controller.election import Election, Rules, next_change
from odradek.cluster.controller.messages.partitions import PartitionResult
from odradek.cluster.controller.removal import Removal
from odradek.cluster.controller.state import ControllerResult, Notice
from odradek.cluster.metadata.image import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from odradek.cluster.metadata.records import PartitionChangeRecord
from odradek.cluster.metadata.topic_names import shown
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from odradek.cluster.controller.commands import BalanceLeaders, ElectLeaders, ElectUnclean
    from odradek.cluster.controller.state import ControllerState
    from odradek.cluster.metadata.image import PartitionImage, TopicImage
    from odradek.cluster.metadata.records import MetadataRecord

NO_BROKER: Final = -1
COORDINATORS: Final = (TRANSACTION_STATE, CONSUMER_OFFSETS)
"""Topics whose leaders are coordinators."""
ELECTIONS_PER_JOB_MAX: Final = 200
"""Maximum elections per run of a job (about 8 ms). The next run follows immediately if more are due."""
NAMED_MAX: Final = 10
"""Maximum partitions that one log event names."""
NOT_NEEDED: Final = "Leader election not needed for topic partition."
NOT_PREFERRED: Final = "The preferred leader was not available."
NOT_ELIGIBLE: Final = "Eligible topic partition leaders are not available."
LOST_REMEDY: Final = (
    "start broker {} with its former data directory; or give up the records that no other replica has:"
    " kafka-leader-election --election-type unclean, or delete the topic"
)


def holds_replica(state: ControllerState, partition: PartitionImage, broker_id: int) -> bool:
    """Return True if the broker has registered the directory of its replica."""
    if broker_id not in partition.replicas:
        return False
    directory = partition.directories[partition.replicas.index(broker_id)]
    broker = state.image.brokers.get(broker_id)
    if broker is None or directory == DIRECTORY_LOST:
        return False
    return directory in {DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING} or directory in broker.directories


@frozen_dataclass(frozen=True, slots=True)
class TopicRules:
    """The conditions that all partitions of a topic share in one decision."""

    is_alive: Callable[[int], bool]
    min_isr: int
    elr: bool
    election: Election
    unclean_shutdown: tuple[int, ...]


def topic_rules(
    state: ControllerState,
    topic: str,
    *,
    election: Election | None = None,
    removed: int = NO_BROKER,
    added: int = NO_BROKER,
    unclean_shutdown: int = NO_BROKER,
) -> TopicRules:
    """Return the rules of a topic.

    `removed` and `unclean_shutdown` count as inactive, `added` counts as active. `election` None: unclean if the topic
    allows it.
    """
    if election is None:
        election = Election.UNCLEAN if allows_unclean_election(state, topic) else Election.ONLINE
    alive = {broker_id for broker_id in state.image.brokers if state.is_active(broker_id)}
    alive = (alive | {added}) - {removed, unclean_shutdown}
    return TopicRules(
        is_alive=alive.__contains__,
        min_isr=min_in_sync(state, topic),
        elr=state.elr_enabled,
        election=election,
        unclean_shutdown=() if unclean_shutdown == NO_BROKER else (unclean_shutdown,),
    )


def rules_for(
    state: ControllerState, topic: str | TopicRules, partition: PartitionImage, *, election: Election | None = None
) -> Rules:
    """Return the election rules of a partition. `topic` is the topic name, or the rules of the topic if known."""
    shared = topic_rules(state, topic, election=election) if isinstance(topic, str) else topic

    def can_lead(broker_id: int) -> bool:
        return shared.is_alive(broker_id) and holds_replica(state, partition, broker_id)

    return Rules(
        can_lead,
        shared.is_alive,
        state.default_directory,
        shared.min_isr,
        shared.elr,
        shared.election,
        shared.unclean_shutdown,
    )


def new_partition_epoch(topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord:
    """Return a record that only starts a new partition epoch. A pending ISR change of the leader is then refused."""
    return PartitionChangeRecord(partition_id=partition.index, topic_id=topic.topic_id, isr=list(partition.isr))


def new_coordinator_epochs(state: ControllerState, broker_id: int) -> list[MetadataRecord]:
    """Return records that start a new leader epoch of the coordinators that a broker leads, with the same leader.

    The epoch of a transaction coordinator is its leader epoch. A marker that the previous process of the broker sent
    late is refused once a marker with a newer epoch is in the log.
    """
    return [
        PartitionChangeRecord(partition_id=partition.index, topic_id=topic.topic_id, leader=broker_id)
        for topic in map(state.image.topic, COORDINATORS)
        if topic is not None
        for partition in topic.partitions.values()
        if partition.leader == broker_id
    ]


def partitions_with(
    state: ControllerState, matches: Callable[[PartitionImage], bool]
) -> Iterable[tuple[TopicImage, PartitionImage]]:
    for topic in state.image.topics.values():
        for partition in topic.partitions.values():
            if matches(partition):
                yield topic, partition


def leads_any(state: ControllerState, broker_id: int) -> bool:
    return next(iter(partitions_with(state, lambda partition: partition.leader == broker_id)), None) is not None


def holds_any(state: ControllerState, broker_id: int) -> bool:
    """Return True if the broker leads a partition, or is in an ISR that it would leave if it were inactive."""
    affected = partitions_with(state, is_affected(state, broker_id, Removal.INACTIVE))
    return next(iter(affected), None) is not None


def could_lead(state: ControllerState, broker_id: int) -> bool:
    """Return True if a partition without a leader has a replica on the broker."""
    without = partitions_with(state, lambda partition: partition.leader < 0 and broker_id in partition.replicas)
    return next(iter(without), None) is not None


def is_affected(state: ControllerState, broker_id: int, removal: Removal) -> Callable[[PartitionImage], bool]:
    """Return a function that is True for the partitions that the removal of a broker changes.

    It is False for them after the removal. Without ELR, the last member of an ISR stays in it.
    """
    if removal is Removal.UNCLEAN:
        return lambda partition: broker_id in partition.isr or broker_id in partition.elr
    kept = 0 if state.elr_enabled else 1
    return lambda partition: partition.leader == broker_id or (broker_id in partition.isr and len(partition.isr) > kept)


def remove_broker(state: ControllerState, broker_id: int, removal: Removal) -> list[MetadataRecord]:
    """Remove a broker from the ISRs of all partitions, and move its leaders."""
    affected = partitions_with(state, is_affected(state, broker_id, removal))
    return changes_of(state, affected, removal=removal, broker_id=broker_id)


def changes_of(
    state: ControllerState,
    partitions: Iterable[tuple[TopicImage, PartitionImage]],
    *,
    removal: Removal | None = None,
    broker_id: int = NO_BROKER,
    added: int = NO_BROKER,
    election: Election | None = None,
) -> list[MetadataRecord]:
    """Return the elections of these partitions that follow from the removal of `broker_id`, or from `added`.

    `election` None: unclean if the topic allows it.
    """
    if removal is Removal.UNCLEAN:
        return _changes(state, partitions, unclean_shutdown=broker_id)
    return _changes(state, partitions, removed=broker_id, added=added, election=election)


def lost_replicas(state: ControllerState, broker_id: int) -> Notice | None:
    """Return a log event for partitions that the returning broker cannot lead because their directory is lost."""

    def needs_lost_replica(partition: PartitionImage) -> bool:
        held = (*partition.isr, *partition.elr, *partition.last_known_elr)
        return not partition.has_leader and broker_id in held and not holds_replica(state, partition, broker_id)

    waiting = [
        f"{topic.name}-{partition.index}"
        for topic, partition in partitions_with(state, needs_lost_replica)
        if not allows_unclean_election(state, topic.name)
    ]
    if not waiting:
        return None
    named = ", ".join(waiting[:NAMED_MAX]) + (", ..." if len(waiting) > NAMED_MAX else "")
    return Notice(
        "partitions without a leader: the last in-sync replica has lost its log directory",
        (
            ("broker", broker_id),
            ("partitions", named),
            ("count", len(waiting)),
            ("remedy", LOST_REMEDY.format(broker_id)),
        ),
    )


def _changes(
    state: ControllerState,
    affected: Iterable[tuple[TopicImage, PartitionImage]],
    *,
    removed: int = NO_BROKER,
    added: int = NO_BROKER,
    unclean_shutdown: int = NO_BROKER,
    election: Election | None = None,
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    shared: dict[str, TopicRules] = {}
    for topic, partition in affected:
        rules = shared.get(topic.name)
        if rules is None:
            rules = shared[topic.name] = topic_rules(
                state,
                topic.name,
                election=election,
                removed=removed,
                added=added,
                unclean_shutdown=unclean_shutdown,
            )
        isr = tuple(broker_id for broker_id in partition.isr if broker_id not in {removed, unclean_shutdown})
        target = partition if isr == partition.isr else replace(partition, isr=isr)
        record = next_change(topic.topic_id, partition, target, rules_for(state, rules, partition))
        if record is not None:
            records.append(record)
    return records


# ---- elections on request -------------------------------------------------------------------------------------------


def elect_leaders(state: ControllerState, command: ElectLeaders) -> ControllerResult[tuple[PartitionResult, ...]]:
    """Return one result per partition, in order. A request for all partitions gets no results without an election."""
    everywhere = command.partitions is None
    requested = every_partition(state, command.topics) if command.partitions is None else command.partitions
    results: list[PartitionResult] = []
    records: list[MetadataRecord] = []
    for name, index in dict.fromkeys(requested):
        error, message, record = _elect(state, name, index, command.election)
        if record is not None:
            records.append(record)
        if not (everywhere and error is ErrorCode.ELECTION_NOT_NEEDED):
            results.append(PartitionResult(name, index, error, message))
    return ControllerResult(tuple(results), tuple(records))


def every_partition(state: ControllerState, names: Iterable[str] | None) -> list[tuple[str, int]]:
    """Return (topic, index) of each partition of the topics `names` that exist; of all topics if `names` is None."""
    topics = state.image.topics
    return [
        (name, index)
        for name in (topics if names is None else names)
        if name in topics
        for index in topics[name].partitions
    ]


def _elect(
    state: ControllerState, name: str, index: int, election: Election
) -> tuple[ErrorCode, str | None, MetadataRecord | None]:
    topic = state.image.topic(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {shown(name)}", None
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}", None
    unclean = election is Election.UNCLEAN
    if partition.has_leader if unclean else partition.leader == partition.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED, None
    rules = rules_for(state, name, partition, election=election)
    record = next_change(topic.topic_id, partition, partition, rules)
    if record is not None:
        return ErrorCode.NONE, None, record
    if unclean:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NOT_ELIGIBLE, None
    return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, NOT_PREFERRED, None


# ---- jobs -----------------------------------------------------------------------------------------------------------


def balance_leaders(state: ControllerState, command: BalanceLeaders) -> ControllerResult[None]:
    """Elect preferred leaders, for brokers that lead too few of the partitions that prefer them."""
    preferring: Counter[int] = Counter()
    elsewhere: dict[int, list[tuple[TopicImage, PartitionImage]]] = {}
    for topic, partition in partitions_with(state, lambda _: True):
        preferred = partition.replicas[0]
        preferring[preferred] += 1
        if partition.leader != preferred:
            elsewhere.setdefault(preferred, []).append((topic, partition))
    records: list[MetadataRecord] = []
    for preferred, away in elsewhere.items():
        if not state.is_active(preferred):
            continue
        if len(away) * 100 <= preferring[preferred] * state.config.leader_imbalance_percentage:
            continue
        for topic, partition in away:
            if preferred not in partition.isr:
                continue  # It cannot lead. The rules of thousands of such partitions would take too long.
            rules = rules_for(state, topic.name, partition, election=Election.PREFERRED)
            record = next_change(topic.topic_id, partition, partition, rules)
            if record is not None:
                records.append(record)
            if len(records) > ELECTIONS_PER_JOB_MAX:
                return ControllerResult(None, tuple(records[:ELECTIONS_PER_JOB_MAX]), more=True)
    return ControllerResult(None, tuple(records), soft=(state.preferred_elections.clear,))


def elect_unclean(state: ControllerState, command: ElectUnclean) -> ControllerResult[None]:
    """Elect leaders for partitions without one, if their topic allows unclean elections."""
    records: list[MetadataRecord] = []
    for topic, partition in partitions_with(state, lambda partition: not partition.has_leader):
        if allows_unclean_election(state, topic.name) and any(map(state.is_active, partition.replicas)):
            record = next_change(topic.topic_id, partition, partition, rules_for(state, topic.name, partition))
            if record is not None:
                records.append(record)
            if len(records) > ELECTIONS_PER_JOB_MAX:
                return ControllerResult(None, tuple(records[:ELECTIONS_PER_JOB_MAX]), more=True)
    return ControllerResult(None, tuple(records))
