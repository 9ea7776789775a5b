"""Bugs that lose records when a machine fails or its disk is damaged. Each replaces one function (see `planted`)."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import odradek.cluster.controller.brokers.registration
import odradek.cluster.controller.leaders
import odradek.cluster.controller.partitions.isr
from odradek.broker.quorum.boot_marker import BootMarker
from odradek.broker.quorum.storage import PartitionRaftStorage
from odradek.broker.replication.follower_fetcher import ReplicaFetcher
from odradek.cluster.controller.partitions.isr import EPOCH_NOT_KNOWN
from odradek.storage.data_directory.checkpoints import Checkpoints
from odradek.storage.data_directory.directory import DataDirectory
from tests.sim.options.cluster_options import FLUSH, ONE_LOSES
from tests.sim.options.run_options import LOOSE
from tests.sim.options.scenario_options import LATE_JOIN
from tests.sim.planted.planted import Planted


def acknowledge_before_flush(_original: Callable[..., Any]) -> Callable[..., Any]:
    """A follower fetches from its log end, which acknowledges it, before the flush that flush.messages requires."""

    async def flush_due(self: ReplicaFetcher) -> None:
        """Flush nothing."""

    return flush_due


def raise_recovery_points(original: Callable[..., Any]) -> Callable[..., Any]:
    """The checkpoint of recovery points contains log end offsets: recovery does not read what was never flushed."""

    def init(self: Checkpoints, disk: Any, directory: Any, logs: Any) -> None:
        original(self, disk, directory, logs)
        self.recovery_points._offset_of = lambda key: logs[key].log_end_offset if key in logs else None

    return init


def ignore_unclean_shutdown(_original: Callable[..., Any]) -> Callable[..., Any]:
    """The controller keeps a broker in ISRs and ELRs that registers after an unclean shutdown."""

    def left_cleanly(_registration: Any, existing: Any) -> bool:
        return existing is not None

    return left_cleanly


def keep_in_elr(original: Callable[..., Any]) -> Callable[..., Any]:
    """The controller removes a broker from ISRs that registers after an unclean shutdown, but not from ELRs."""

    def topic_rules(*arguments: Any, **options: Any) -> Any:
        return replace(original(*arguments, **options), unclean_shutdown=())

    return topic_rules


def trust_any_boot(original: Callable[..., Any]) -> Callable[..., Any]:
    """A broker counts as one whose process failed, although its machine has failed."""

    def previous_broker_epoch(self: BootMarker) -> int:
        if self._disk.exists(self._path):
            self._boot_id = json.loads(bytes(self._disk.read_file(self._path)))["bootId"]
        epoch: int = original(self)
        return epoch

    return previous_broker_epoch


def forget_lost_records(_original: Callable[..., Any]) -> Callable[..., Any]:
    """A broker whose recovery has removed committed records stays eligible as a leader."""

    def note_loss(self: DataDirectory, reason: str) -> None:
        """Record nothing."""

    return note_loss


def accept_any_broker_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    """The controller adds any incarnation of a broker to an ISR, as before KIP-903."""

    def ineligible_member(state: Any, requested: Any, partition: Any) -> Any:
        isr = tuple((broker_id, EPOCH_NOT_KNOWN) for broker_id, _ in requested.isr)
        return original(state, replace(requested, isr=isr), partition)

    return ineligible_member


def leave_metadata_unflushed(_original: Callable[..., Any]) -> Callable[..., Any]:
    """A voter acknowledges records of the metadata log before they are durable."""

    async def sync(self: PartitionRaftStorage) -> None:
        """Flush nothing."""

    return sync


BUGS: Final = (
    Planted(
        "follower acknowledges before the flush",
        ReplicaFetcher,
        "_flush_due",
        acknowledge_before_flush,
        ("I12 .* durable on",),
        durability=FLUSH,
        brokers=3,
    ),
    Planted(
        "recovery point above the flushed records",
        Checkpoints,
        "__init__",
        raise_recovery_points,
        ("I16",),
        durability=LOOSE,
    ),
    Planted(
        "unclean shutdown ignored by the controller",
        odradek.cluster.controller.brokers.registration,
        "_left_cleanly",
        ignore_unclean_shutdown,
        ("I11", "I1 "),
        durability=ONE_LOSES,
        brokers=3,
        outages=True,
    ),
    Planted(
        "ELR member with a lost log elected",
        odradek.cluster.controller.leaders,
        "topic_rules",
        keep_in_elr,
        ("I11", "I1 "),
        durability=ONE_LOSES,
        brokers=3,
        outages=True,
    ),
    Planted(
        "boot id of another boot trusted",
        BootMarker,
        "previous_broker_epoch",
        trust_any_boot,
        ("I11", "I1 "),
        durability=ONE_LOSES,
        brokers=3,
        outages=True,
    ),
    Planted(
        "replica with lost records eligible as a leader",
        DataDirectory,
        "note_loss",
        forget_lost_records,
        ("I11", "I1 "),
        brokers=3,
        damage=True,
    ),
    Planted(
        "broker epoch of a new ISR member not checked",
        odradek.cluster.controller.partitions.isr,
        "_ineligible_member",
        accept_any_broker_epoch,
        ("I11", "I1 "),
        durability=ONE_LOSES,
        brokers=3,
        scenario=LATE_JOIN,
    ),
    Planted(
        "metadata log not flushed",
        PartitionRaftStorage,
        "sync",
        leave_metadata_unflushed,
        ("I12",),
        durability=ONE_LOSES,
        brokers=3,
    ),
)
