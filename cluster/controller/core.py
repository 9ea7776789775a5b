"""The controller as a replicated core: decides on the metadata of the cluster, one command at a time.

Its log is `__cluster_metadata-0`. DECIDE and DECIDE_AT have one row per command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.cluster.controller import commands, leaders, preferred, producer_ids, sweeps
from odradek.cluster.controller.brokers import active as brokers
from odradek.cluster.controller.brokers import heartbeats, registration
from odradek.cluster.controller.partitions import creation as partitions
from odradek.cluster.controller.partitions import isr, reassignment, topics
from odradek.cluster.controller.settings import acls, alter_configs, client_quotas, features, scram, tokens
from odradek.cluster.controller.state import Notice
from odradek.cluster.controller.sweeps import elect_online_now
from odradek.cluster.metadata.errors import InconsistentMetadata
from odradek.cluster.metadata.image import RECOVERING
from odradek.cluster.metadata.records import (
    PartitionChangeRecord,
    decode_record,
    encode_records,
)
from odradek.protocol.errors import ErrorCode
from odradek.runtime.shard import Decision, Loaded, Marker, ShardRecord, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from odradek.cluster.controller.state import ControllerResult, ControllerState
    from odradek.cluster.metadata.records import MetadataRecord

DECIDE: Final[Mapping[type[commands.Command], Callable[[ControllerState, Any], ControllerResult[Any]]]] = {
    commands.Bootstrap: features.bootstrap,
    commands.UpdateFeatures: features.update_features,
    commands.CreateTopics: topics.create_topics,
    commands.DeleteTopics: topics.delete_topics,
    commands.CreatePartitions: partitions.create_partitions,
    commands.AllocateProducerIds: producer_ids.allocate_producer_ids,
    commands.RegisterBroker: registration.register_broker,
    commands.RegisterController: registration.register_controller,
    commands.UnregisterController: registration.unregister_controller,
    commands.Heartbeat: heartbeats.heartbeat,
    commands.AlterPartition: isr.alter_partition,
    commands.AlterReassignments: reassignment.alter_reassignments,
    commands.ListReassignments: reassignment.list_reassignments,
    commands.AlterConfigs: alter_configs.alter_configs,
    commands.AlterClientQuotas: client_quotas.alter_client_quotas,
    commands.CreateAcls: acls.create_acls,
    commands.RemoveAcls: acls.remove_acls,
    commands.AlterScramCredentials: scram.alter_scram_credentials,
    commands.ElectLeaders: leaders.elect_leaders,
    commands.BalanceLeaders: leaders.balance_leaders,
    commands.ElectPreferred: preferred.elect_preferred,
    commands.ElectUnclean: leaders.elect_unclean,
    commands.ElectOnline: sweeps.elect_online,
    commands.DrainBroker: sweeps.drain_broker,
    commands.ReleaseBroker: sweeps.release_broker,
    commands.FenceBroker: brokers.fence_broker,
    commands.UnfenceBroker: brokers.unfence_broker,
    commands.UnregisterBroker: brokers.unregister_broker,
    commands.ExpireSessions: brokers.expire_sessions,
}

DECIDE_AT: Final[Mapping[type[commands.Command], Callable[[ControllerState, Any, int], ControllerResult[Any]]]] = {
    commands.CreateToken: tokens.create_token,
    commands.RenewToken: tokens.renew_token,
    commands.ExpireToken: tokens.expire_token,
    commands.RemoveExpiredTokens: tokens.remove_expired_tokens,
}
"""Decisions that depend on the wall-clock time, which they receive in milliseconds."""

JOBS: Final = (commands.BalanceLeaders, commands.ElectUnclean, commands.RemoveExpiredTokens)


class Controller:
    """Core of the metadata shard. Its log holds the whole state, except broker sessions."""

    def __init__(self, state: ControllerState) -> None:
        """Start with the empty `state`, which `apply` fills from the log."""
        self.state = state

    def decide(self, command: commands.Command, now_ms: int) -> Decision[Any]:
        """Decide `command` without changing the state. Raise Refusal if a check fails."""
        timed = DECIDE_AT.get(type(command))
        result = DECIDE[type(command)](self.state, command) if timed is None else timed(self.state, command, now_ms)
        return Decision(
            result.reply,
            _shard_records(result.records),
            effects=(*result.notices, *_losses(self.state, result.records)),
            timers=self._timers(command, more=result.more) if isinstance(command, JOBS) else result.timers,
            keys=result.keys,
            soft=result.soft,
        )

    def _timers(self, *jobs: commands.Command, more: bool = False) -> tuple[Timer, ...]:
        """Return the timer of the next run of each job. Its delay is 0 if the last run has left work."""
        config = self.state.config
        intervals_ms = {
            commands.BalanceLeaders: config.leader_balance_interval_ms,
            commands.ElectUnclean: config.unclean_election_interval_ms,
            commands.RemoveExpiredTokens: config.tokens.check_interval_ms if config.tokens.enabled else None,
        }
        delays = ((job, intervals_ms[type(job)]) for job in jobs)
        return tuple(
            Timer(type(job).__name__, command=job, delay_ms=0 if more else delay)
            for job, delay in delays
            if delay is not None
        )

    def apply(self, offset: int, record: ShardRecord, leader_epoch: int) -> None:
        """Replay a record. Raise UnsupportedMetadata, InconsistentMetadata or Malformed: the node must stop."""
        self.state.replay(offset, leader_epoch, decode_record(record.value) if record.memo is None else record.memo)

    def apply_marker(self, offset: int, marker: Marker, leader_epoch: int) -> None:
        raise InconsistentMetadata(
            f"metadata log, offset {offset}: transaction markers are not allowed in the metadata log"
        )

    def on_committed(self, high_watermark: int) -> None:
        """Ignore it: the engine delays replies until the commit."""

    def on_loaded(self, leader_epoch: int, now_ms: int) -> Loaded:
        """Start the jobs. Raise UnsupportedMetadata if this version does not support a finalized feature level."""
        if self.state.in_transaction:
            raise InconsistentMetadata(
                "metadata log: ends inside a metadata transaction, which this version never writes"
            )
        features.check_supported(self.state.image)
        timers = self._timers(*(job() for job in JOBS))
        if any(leaders.partitions_with(self.state, lambda partition: not partition.has_leader)):
            # The former controller may have failed during a pass over these partitions.
            timers = (*timers, elect_online_now(self.state))
        return Loaded((*timers, *preferred.elections_after_load(self.state)))

    def append_refusal(self, error: ErrorCode) -> ErrorCode:
        return ErrorCode.NOT_CONTROLLER if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else error


def _losses(state: ControllerState, records: Iterable[MetadataRecord]) -> tuple[Notice, ...]:
    """Return a log event for unclean leader elections."""
    lost = [
        f"{state.image.topics_by_id[record.topic_id].name}-{record.partition_id} (broker {record.leader})"
        for record in records
        if isinstance(record, PartitionChangeRecord) and record.leader_recovery_state == RECOVERING
    ]
    if not lost:
        return ()
    named = ", ".join(lost[: leaders.NAMED_MAX]) + (", ..." if len(lost) > leaders.NAMED_MAX else "")
    return (Notice("unclean leader election: acknowledged records may be lost", (("partitions", named),)),)


def _shard_records(records: Sequence[MetadataRecord]) -> tuple[ShardRecord, ...]:
    return tuple(
        ShardRecord(None, value, memo=record) for record, value in zip(records, encode_records(records), strict=True)
    )
