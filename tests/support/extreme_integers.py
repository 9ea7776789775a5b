"""Requests with an extreme value in one integer field, for each integer field of each API.

The other fields have values that an honest request could have (`Facts`), so that the handler reaches the field.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from odradek.protocol.batch import HEADER_BYTES, build_batch, read_header, seal_batch
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.schema import field_rows

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from odradek.protocol.schema import FieldRow, Message, Struct

LEFT_OUT: Final = frozenset({("ProduceRequest", "acks", 0), ("UnregisterBrokerRequest", "broker_id", 1)})
"""Message, field and value: a request without a response, and one that removes the only broker as it should."""
EXTREMES: Final[Mapping[str, tuple[int, ...]]] = {
    "int8": (-128, -2, -1, 0, 1, 2, 126, 127),
    "int16": (-(2**15), -2, -1, 0, 1, 2**15 - 2, 2**15 - 1),
    "int32": (-(2**31), -2, -1, 0, 1, 7, 999_000, 2**31 - 2**20, 2**31 - 2, 2**31 - 1),
    "int64": (-(2**63), -(2**31) - 1, -2, -1, 0, 1, 2**31, 2**62, 2**63 - 2, 2**63 - 1),
    "uint16": (0, 1, 2**16 - 1),
    "uint32": (0, 1, 2**32 - 1),
}
METADATA_APIS: Final = frozenset(
    {"VoteRequest", "BeginQuorumEpochRequest", "EndQuorumEpochRequest", "DescribeQuorumRequest", "FetchSnapshotRequest"}
)
"""Requests about the metadata log."""
TRUE_FIELDS: Final = frozenset({"keep_prepared_txn"})
"""Boolean fields that are true, so that the handler reaches the code of the field. All others are false."""
BATCH_FIELDS: Final[Mapping[str, str]] = {
    "base_offset": "int64",
    "leader_epoch": "int32",
    "attributes": "int16",
    "last_offset_delta": "int32",
    "base_timestamp": "int64",
    "max_timestamp": "int64",
    "producer_id": "int64",
    "producer_epoch": "int16",
    "base_sequence": "int32",
    "record_count": "int32",
}
"""Integer fields in the header of a record batch that a Produce request chooses, and their kinds."""
BATCH_TIMESTAMP_MS: Final = 1_700_000_000_000


@dataclass(frozen=True)
class Facts:
    """Names, ids and epochs that the broker knows."""

    cluster_id: str
    topic: str
    topic_id: UUID
    group: str
    member_id: str
    generation: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    broker_epoch: int
    incarnation_id: UUID
    node_id: int = 1
    """The node that receives the requests."""
    claimed_id: int = -1
    """The node in whose name the requests are sent. -1: a client sends them."""


@dataclass(frozen=True)
class Case:
    """One request. `label` names the field and its value."""

    label: str
    request: Any
    version: int


def plausible(cls: type[Struct], version: int, facts: Facts, of: str = "") -> Any:
    """Return an instance of `cls` with one element in each array, and values from `facts`."""
    of = of or cls.__name__
    values: dict[str, Any] = {}
    for row in field_rows(cls):
        if not row.in_version(version):
            continue
        value = plausible(row.struct, version, facts, of) if row.struct is not None else _value(row, facts, of)
        values[row.name] = [value] if row.is_array else value
    return cls(**values)


def _value(row: FieldRow, facts: Facts, of: str) -> Any:
    if row.kind == "uuid":
        chosen = {"topic_id": facts.topic_id, "incarnation_id": facts.incarnation_id}
        return chosen.get(row.name, UUID(int=0))
    if row.kind == "string":
        return _text(row, facts, of)
    if row.kind == "records":
        return build_batch([(b"k", b"v", BATCH_TIMESTAMP_MS, ())])
    if row.kind == "bytes":
        return b""
    if row.kind == "bool":
        return row.name in TRUE_FIELDS
    return _integer(row.name, facts, of)


def _text(row: FieldRow, facts: Facts, of: str) -> str | None:
    if row.name in {"name", "topic", "topic_name"} and of in METADATA_APIS:
        return CLUSTER_METADATA
    texts = {
        "cluster_id": facts.cluster_id,
        "group_id": facts.group,
        "group_ids": facts.group,
        "groups": facts.group,
        "member_id": facts.member_id,
        "transactional_id": facts.transactional_id,
        "transactional_ids": facts.transactional_id,
        "coordinator_keys": facts.group,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "feature": "transaction.version",
        "host": "127.0.0.1",
        "mechanism": "SCRAM-SHA-256",
    }
    names_of = {
        "CreateTopicsRequest": "created",
        "DeleteTopicsRequest": "missing",
        "JoinGroupRequest": "range",
        "BrokerRegistrationRequest": "PLAINTEXT",
        "ControllerRegistrationRequest": "PLAINTEXT",
    }
    if row.name in texts:
        return texts[row.name]
    if row.name in {"name", "topic", "topic_name", "subscribed_topic_names", "resource_name"}:
        return names_of.get(of, facts.topic)
    return None if row.ever_nullable() and not row.is_array else "x"


def _integer(name: str, facts: Facts, of: str) -> int:
    sender = max(facts.claimed_id, 1)
    integers = {
        "acks": -1,
        "timeout_ms": 1_000,
        "num_partitions": 1,
        "replication_factor": 1,
        "broker_ids": 1,
        "replicas": 1,
        "broker_epoch": facts.broker_epoch,
        "broker_id": 7 if of == "UnregisterBrokerRequest" else sender,
        "controller_id": 1,
        "candidate_id": sender,
        "voter_id": facts.node_id,
        "leader_id": sender,
        "replica_id": facts.claimed_id,
        "producer_id": facts.producer_id,
        "producer_epoch": facts.producer_epoch,
        "generation_id": facts.generation,
        "generation_id_or_member_epoch": facts.generation,
        "member_epoch": facts.generation,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "transaction_timeout_ms": 60_000,
        "current_leader_epoch": -1,
        "committed_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "session_epoch": -1,
        "max_bytes": 1_000_000,
        "partition_max_bytes": 1_000_000,
        "response_partition_limit": 10,
        "count": 3,
        "port": 1,
        "max_supported_version": 1,
        "resource_type": 2,
        "duration_filter": -1,
        "endpoint_type": 1,
        "transaction_version": 2,
        "leader_epoch": 1 if of in METADATA_APIS else 0,
    }
    return integers.get(name, 0)


def integer_paths(cls: type[Struct], version: int) -> Iterator[tuple[FieldRow, ...]]:
    """Yield the path of fields to each integer of `cls` in this version."""
    for row in field_rows(cls):
        if not row.in_version(version):
            continue
        if row.struct is not None:
            for path in integer_paths(row.struct, version):
                yield (row, *path)
        elif row.kind in EXTREMES:
            yield (row,)


def cases(cls: type[Message], version: int, facts: Facts) -> Iterator[Case]:
    """Yield a request for each integer field and each of its extreme values."""
    for path in integer_paths(cls, version):
        for value in EXTREMES[path[-1].kind]:
            if (cls.NAME, path[-1].name, value) in LEFT_OUT:
                continue
            request = plausible(cls, version, facts)
            _put(request, path, value)
            yield Case(f"{cls.NAME} v{version}: {'.'.join(row.name for row in path)}={value}", request, version)


def random_case(cls: type[Message], version: int, facts: Facts, rng: random.Random) -> Case:
    """Return a request with extreme values in a random half of its integer fields."""
    request = plausible(cls, version, facts)
    changes: list[str] = []
    for path in integer_paths(cls, version):
        if rng.random() < 0.5:
            value = rng.choice(EXTREMES[path[-1].kind])
            if (cls.NAME, path[-1].name, value) in LEFT_OUT:
                continue
            _put(request, path, value)
            changes.append(f"{path[-1].name}={value}")
    return Case(f"{cls.NAME} v{version}: {', '.join(changes)}", request, version)


def batches(facts: Facts) -> Iterator[tuple[str, bytes, bool]]:
    """Yield record batches with one extreme value in the header: label, batch, and whether it is transactional.

    The length and the checksum of each batch are correct.
    """
    identity: dict[str, Any] = {
        "producer_id": facts.producer_id,
        "producer_epoch": facts.producer_epoch,
        "base_sequence": 0,
    }
    kinds: tuple[tuple[str, bool, dict[str, Any]], ...] = (
        ("plain", False, {}),
        ("idempotent", False, {**identity, "producer_id": facts.producer_id + 1}),
        ("transactional", True, identity),
        ("not transactional, in the name of a transactional producer", False, identity),
    )
    for kind, transactional, values in kinds:
        plain = build_batch([(b"k", b"v", BATCH_TIMESTAMP_MS, ())], transactional=transactional, **values)
        header = read_header(plain)
        body = memoryview(plain)[HEADER_BYTES:]
        yield kind, plain, transactional
        for name, integer in BATCH_FIELDS.items():
            for value in EXTREMES[integer]:
                changed = dataclasses.replace(header, **{name: value})
                yield f"{kind}: {name}={value}", seal_batch(changed, body), transactional


def _put(request: Any, path: tuple[FieldRow, ...], value: int) -> None:
    target = request
    for row in path[:-1]:
        target = getattr(target, row.name)
        target = target[0] if row.is_array else target
    row = path[-1]
    setattr(target, row.name, [value] if row.is_array else value)
