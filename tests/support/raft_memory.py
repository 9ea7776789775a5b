"""A raft replica's storage in memory that loses what was not synced, and the port of topic settings for tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.cluster.controller.commands import (
    Bootstrap,
    DrainBroker,
    ElectPreferred,
    RegisterBroker,
    ReleaseBroker,
    UnfenceBroker,
)
from odradek.cluster.controller.core import Controller
from odradek.cluster.controller.messages.brokers import BrokerRegistration
from odradek.cluster.controller.messages.tokens import TokenRules
from odradek.cluster.controller.messages.topics import ConfigValue
from odradek.cluster.controller.settings.features import SUPPORTED_FEATURES
from odradek.cluster.controller.state import ControllerConfig, ControllerState
from odradek.cluster.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, Endpoint
from odradek.cluster.metadata.records import encode_record
from odradek.cluster.raft.ports import SnapshotBytes
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import RetryAfter, ShardRecord
from tests.support.pure_decisions import PureDecisions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from odradek.cluster.controller.commands import Command
    from odradek.cluster.metadata.records import MetadataRecord
    from odradek.cluster.raft.messages import EpochEnd, HardState
    from odradek.protocol.schema import Buffer

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


@dataclass
class MemorySnapshotWriter:
    storage: MemoryRaftStorage
    snapshot: EpochEnd
    data: bytearray = field(default_factory=bytearray)

    def append(self, data: Buffer) -> None:
        if self.storage.snapshots_broken:
            raise OSError("no space left")
        self.data += data

    async def finish(self) -> None:
        self.storage.check()
        self.storage.files[self.snapshot] = bytes(self.data)

    def abandon(self) -> None:
        self.data.clear()


@dataclass
class MemoryRaftStorage:
    """In-memory storage of a Raft log.

    `sync_allowed`: with an event, `sync` and `read` wait for it (a slow disk). `broken`: every write raises.
    `done`: all operations, in order.
    """

    batches: list[bytes] = field(default_factory=list)
    hard_state: HardState | None = None
    synced: int = 0
    syncs: int = 0
    sync_allowed: asyncio.Event | None = None
    broken: bool = False
    high_watermark: int = 0
    whole: bool = True
    start: int = 0
    files: dict[EpochEnd, bytes] = field(default_factory=dict)
    snapshots_broken: bool = False
    done: list[str] = field(default_factory=list)

    def check(self) -> None:
        if self.broken:
            raise OSError("no space left")

    async def open(self) -> bool:
        return self.whole

    def _headers(self) -> list[tuple[int, int, int]]:
        return [(h.base_offset, h.last_offset, h.leader_epoch) for b in self.batches for h, _ in iter_batches(b)]

    @property
    def log_start_offset(self) -> int:
        return self.start

    @property
    def log_end_offset(self) -> int:
        return self._headers()[-1][1] + 1 if self.batches else self.start

    def epochs(self) -> Sequence[tuple[int, int]]:
        starts: dict[int, int] = {}
        for base, _, epoch in self._headers():
            starts.setdefault(epoch, base)
        return list(starts.items())

    def load_hard_state(self) -> HardState | None:
        return self.hard_state

    async def save_hard_state(self, state: HardState) -> None:
        self.check()
        if self.sync_allowed is not None:
            await self.sync_allowed.wait()
        self.done.append("saved")
        self.hard_state = state

    async def truncate_to(self, offset: int) -> None:
        self.check()
        self.batches = [b for b in self.batches for h, _ in iter_batches(b) if h.last_offset < offset]

    async def write(self, batches: Sequence[bytes]) -> None:
        for batch in batches:
            self.check()
            (header, _) = next(iter_batches(batch))
            assert header.base_offset == self.log_end_offset
            self.batches.append(batch)
            self.done.append("written")

    async def sync(self) -> None:
        written = len(self.batches)
        if self.sync_allowed is not None:
            await self.sync_allowed.wait()
        self.done.append("synced")
        self.synced = min(written, len(self.batches))
        self.syncs += 1

    async def read(self, offset: int, end: int, max_bytes: int) -> bytes:
        rows = zip(self._headers(), self.batches, strict=True)
        return b"".join(batch for (_, last, _), batch in rows if offset <= last < end)

    def set_high_watermark(self, offset: int) -> None:
        assert offset >= self.high_watermark
        self.high_watermark = offset

    def snapshots(self) -> Sequence[EpochEnd]:
        return sorted(self.files, key=lambda snapshot: snapshot.end_offset)

    def begin_snapshot(self, snapshot: EpochEnd) -> MemorySnapshotWriter:
        return MemorySnapshotWriter(self, snapshot)

    async def read_snapshot(self, snapshot: EpochEnd, position: int, max_bytes: int) -> SnapshotBytes | None:
        data = self.files.get(snapshot)
        return None if data is None else SnapshotBytes(len(data), data[position : position + max_bytes])

    async def restart_at(self, snapshot: EpochEnd) -> None:
        self.batches, self.synced, self.start = [], 0, snapshot.end_offset
        self.files = {snapshot: self.files[snapshot]}

    async def forget_before(self, snapshot: EpochEnd) -> None:
        self.files = {each: data for each, data in self.files.items() if each.end_offset >= snapshot.end_offset}
        kept = [b for b, (base, _, _) in zip(self.batches, self._headers(), strict=True) if base >= snapshot.end_offset]
        self.synced = max(0, self.synced - len(self.batches) + len(kept))
        self.batches, self.start = kept, snapshot.end_offset

    def crash(self) -> MemoryRaftStorage:
        """Return the disk after a power failure: only synced batches remain."""
        return MemoryRaftStorage(
            self.batches[: self.synced], self.hard_state, self.synced, start=self.start, files=dict(self.files)
        )


class PlainConfigs:
    """A TopicConfigs that knows a few settings."""

    num_partitions = 3
    default_replication_factor = 1
    unclean_leader_election_enable = False
    min_insync_replicas = 1
    known = ("retention.ms", "min.insync.replicas", "unclean.leader.election.enable", "cleanup.policy")

    def validate(self, topic: str, configs: Mapping[str, str]) -> None:
        for name in configs:
            if name not in self.known:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")

    def validate_broker(self, broker: str, configs: Mapping[str, str]) -> None:
        self.validate("", configs)

    def validate_group(self, configs: Mapping[str, str]) -> None:
        if "consumer.session.timeout.ms" not in (configs or ("consumer.session.timeout.ms",)):
            raise Refusal(ErrorCode.INVALID_CONFIG, "Unknown group config name")

    def list_default(self, kind: int, name: str) -> tuple[str, ...] | None:
        return ("delete",) if name == "cleanup.policy" else None

    def effective(self, topic: str, configs: Mapping[str, str]) -> tuple[ConfigValue, ...]:
        return tuple(ConfigValue(name, configs[name], 1) for name in sorted(configs))


def registration(
    broker_id: int = 1, *, incarnation: int = 7, rack: str | None = None, host: str = "localhost", previous: int = -1
) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id,
        CLUSTER_ID,
        UUID(int=(incarnation << 64) + broker_id),
        (Endpoint("PLAINTEXT", host, 9092 + broker_id),),
        SUPPORTED_FEATURES,
        (UUID(int=(1 << 100) + broker_id),),
        rack,
        previous_broker_epoch=previous,
    )


DRAINS_MAX = 3
"""Drains that one command may need: the first can be one of another command."""


class ControllerRig:
    """A controller core on an in-memory log. Each decision is applied immediately."""

    def __init__(self, seed: int = 0, *, tokens: TokenRules | None = None) -> None:
        self.log: list[ShardRecord] = []
        self.batches: list[list[ShardRecord]] = []
        self.notices: list[Any] = []
        self.now_ms = 1_000
        config = ControllerConfig(1, CLUSTER_ID, tokens=tokens or TokenRules())
        state = ControllerState(config, PlainConfigs(), random.Random(seed), lambda: len(self.log))
        self.core = Controller(state)
        self.pure = PureDecisions()
        self.due: dict[Any, Command] = {}
        """Commands of timers without delay, and of drains, by key."""
        self.later: dict[Any, Command] = {}
        """Commands of the timers that end a drain, or elect the preferred leaders of a broker."""

    def do(self, command: Command) -> Any:
        """Decide the command, and return its reply. If it waits for a drain, do the slices of the drain first."""
        for _ in range(DRAINS_MAX):
            reply = self.decide(command)
            if not isinstance(reply, RetryAfter):
                return reply
            self.run_due()
        raise AssertionError(f"a drain does not end: {command}")

    def run_due(self) -> None:
        while self.due:
            self.run_next_due()

    def run_next_due(self) -> None:
        """Decide the command of the first timer without delay."""
        self.decide(self.due.pop(next(iter(self.due))))

    def decide(self, command: Command) -> Any:
        decision = self.pure.decide(self.core, command, self.now_ms)
        assert not isinstance(decision.reply, Refusal)
        for change in decision.soft:
            change()
        self._append(decision.records)
        if decision.records:
            self.batches.append(list(decision.records))
        self.notices += decision.effects
        for timer in decision.timers:
            self.due.pop(timer.key, None)
            self.later.pop(timer.key, None)
            if isinstance(timer.command, ReleaseBroker | ElectPreferred) and timer.delay_ms:
                self.later[timer.key] = timer.command
            elif timer.delay_ms == 0 or isinstance(timer.command, DrainBroker):
                self.due[timer.key] = timer.command
        return decision.reply

    def commit(self, *records: MetadataRecord) -> None:
        """Append and apply records that come from no decision."""
        self._append(tuple(ShardRecord(None, encode_record(record)) for record in records))

    def _append(self, records: tuple[ShardRecord, ...]) -> None:
        for record in records:
            self.core.apply(len(self.log), record, 1)
            self.log.append(record)

    def with_brokers(self, *broker_ids: int, elr: bool = True) -> ControllerRig:
        """Bootstrapped, with these brokers registered and unfenced."""
        self.do(Bootstrap({} if elr else {ELIGIBLE_LEADER_REPLICAS_VERSION: 0}))
        for broker_id in broker_ids:
            self.do(RegisterBroker(registration(broker_id), self.now_ms))
            self.do(UnfenceBroker(broker_id))
        return self
