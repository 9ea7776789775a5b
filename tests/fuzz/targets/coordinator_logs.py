"""Fuzz targets of the replay of coordinator logs.

The parts of an input are records in turn: a byte of settings, the key, and the value. The shard is loaded, its timers
expire, and a request follows.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from odradek.broker.coordinators.marker_sender import WRITE_TXN_MARKERS_VERSION, _request
from odradek.coordinator.group import records as group_records
from odradek.coordinator.group.core import GroupShard
from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn import records as txn_records
from odradek.coordinator.txn.core import TransactionShard
from odradek.coordinator.txn.ports import TxnConfig
from odradek.protocol.codec import encode
from odradek.protocol.errors import Refusal
from odradek.protocol.records.transaction_log import TransactionLogValue
from odradek.runtime.shard import Decision, Marker, ShardRecord
from tests.fuzz import parts
from tests.fuzz.mutations import damaged
from tests.fuzz.target import KIB, Bound, Target
from tests.fuzz.valid import random_struct
from tests.support.group_ports import FakeConfigs, FakeFeatures, FakeTopics, NewIds
from tests.support.txn_rig import Ids, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from odradek.runtime.shard import Shard

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 10**9
LEADER_EPOCH = 7
RECORD_PARTS = 3
TOMBSTONE, TRANSACTIONAL, MARKER, COMMIT = 1, 2, 4, 8
PRODUCERS = 3
SEED, SEEDS, RECORDS_MAX = 5, 60, 6
TIMERS_MAX = 20
"""Maximum timers that expire after a load. An expired timer may set itself again."""


def log_of(data: bytes) -> Iterator[ShardRecord | Marker]:
    """Return the records of an input. Transactional records belong to a few producers."""
    rest = parts.split(data)
    for at in range(0, len(rest) - RECORD_PARTS + 1, RECORD_PARTS):
        settings, key, value = rest[at : at + RECORD_PARTS]
        flags = settings[0] if settings else 0
        producer_id = flags >> 4 if flags & (TRANSACTIONAL | MARKER) else -1
        if flags & MARKER:
            yield Marker(producer_id, 0, 1, commit=bool(flags & COMMIT))
        else:
            yield ShardRecord(key, None if flags & TOMBSTONE else value, producer_id, 0 if producer_id >= 0 else -1)


def load(shard: Shard[Any, Any], data: bytes) -> None:
    """Replay a log, encode the markers of its transactions, and let the timers expire, as the engine does."""
    offset = 0
    for offset, record in enumerate(log_of(data), 1):
        if isinstance(record, Marker):
            shard.apply_marker(offset - 1, record, LEADER_EPOCH)
        else:
            shard.apply(offset - 1, record, LEADER_EPOCH)
    shard.on_committed(offset)
    loaded = shard.on_loaded(LEADER_EPOCH, NOW_MS)
    markers = [effect.marker for effect in loaded.effects if isinstance(effect, c.SendMarkers)]
    encode(_request(markers), WRITE_TXN_MARKERS_VERSION)
    timers = list(loaded.timers)
    for timer in timers[:TIMERS_MAX]:
        if timer.command is not None:
            offset = decide(shard, timer.command, offset)


def decide(shard: Shard[Any, Any], command: Any, offset: int) -> int:
    """Decide one command long after the load, and apply its records. Return the new log end offset."""
    try:
        decision = shard.decide(command, LATER_MS)
    except Refusal:
        return offset
    if isinstance(decision, Decision):
        for change in decision.soft:
            change()
        for record in decision.records:
            shard.apply(offset, ShardRecord(record.key, record.value), LEADER_EPOCH)
            offset += 1
        shard.on_committed(offset)
    return offset


def run_transactions(data: bytes) -> int:
    shard = TransactionShard(TxnConfig(), Level(), Ids().take)
    load(shard, data)
    for command in (c.SweepTimedOut(), c.SweepExpired(), c.ListAll(), c.Describe("a")):
        decide(shard, command, 1_000_000)
    return 0


def run_groups(data: bytes) -> int:
    load(GroupShard(FakeConfigs(), FakeTopics(), FakeFeatures(), NewIds()), data)
    return 0


def transaction_record(rng: Random) -> tuple[bytes, bytes]:
    key = txn_records.encode_key(rng.choice(("a", "b", "", "x" * 200)))
    value = random_struct(TransactionLogValue, 1, rng)
    value.transaction_status = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, value.transaction_status))
    return key, b"\x00\x01" + encode(value, 1)


GROUP_TYPES = sorted(group_records._TYPES)


def group_record(rng: Random) -> tuple[bytes, bytes]:
    """Return a record of any type, mostly of one of two groups and two members."""
    kind = rng.choice(GROUP_TYPES)
    key_class, value_class = group_records._TYPES[kind]
    key = random_struct(key_class, 0, rng)
    for name in ("group", "group_id"):
        if hasattr(key, name):
            setattr(key, name, rng.choice(("g", "h")))
    if hasattr(key, "member_id"):
        key.member_id = rng.choice(("m", "n"))
    version = rng.randint(value_class.MIN_VERSION, value_class.MAX_VERSION)
    value = random_struct(value_class, version, rng)
    return kind.to_bytes(2, "big") + encode(key, 0), version.to_bytes(2, "big") + encode(value, version)


def random_log(record: Callable[[Random], tuple[bytes, bytes]], rng: Random) -> bytes:
    found: list[bytes] = []
    for _ in range(rng.randint(1, RECORDS_MAX)):
        producer = rng.randrange(PRODUCERS) << 4
        flags = rng.choice(
            (0, 0, 0, 0, TOMBSTONE, TRANSACTIONAL | producer, MARKER | producer, MARKER | COMMIT | producer)
        )
        found += [bytes((flags,)), *record(rng)]
    return parts.joined(found)


def logs(record: Callable[[Random], tuple[bytes, bytes]]) -> list[bytes]:
    rng = Random(SEED)
    return [random_log(record, rng) for _ in range(SEEDS)]


def mutation(record: Callable[[Random], tuple[bytes, bytes]]) -> Callable[[bytes, Random], bytes]:
    def mutate(data: bytes, rng: Random) -> bytes:
        """Damage a log, append other records, or generate a log."""
        kind = rng.random()
        if kind < 0.4:
            return parts.mutate(data, rng)
        if kind < 0.5:
            return damaged(data, rng)
        return data + random_log(record, rng) if kind < 0.8 else parts.mutate(random_log(record, rng), rng)

    return mutate


LOAD = Bound(30_000, 200)
TRANSACTION_STATE = Target(
    "transaction-state", run_transactions, lambda: logs(transaction_record), memory=Bound(256 * KIB, 256), steps=LOAD,
    mutate=mutation(transaction_record),
)  # fmt: skip
CONSUMER_OFFSETS = Target(
    "consumer-offsets", run_groups, lambda: logs(group_record), memory=Bound(256 * KIB, 256), steps=LOAD,
    mutate=mutation(group_record),
)  # fmt: skip
