"""Encoding and decoding of all messages and versions that kio has, compared with kio in both directions."""

from __future__ import annotations

import dataclasses
import importlib
import io
import pkgutil
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import kio.schema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from odradek.protocol.codec import decode, encode
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import FieldRow, Struct, field_rows
from tests.support.effort import effort
from tests.support.messages import ALL_CASES, ALL_MESSAGES, struct_values, versions

EXAMPLES_PER_MESSAGE = 15
TIMEDELTA_MS_MAX = 2**40  # timedelta uses floats: above this value, kio loses milliseconds
DATETIME_SECONDS_MAX = 2**37

# kio has only the schemas of kafka-clients 4.3. These are internal records of brokers, and the APIs of Kafka 4.4.
MISSING_IN_KIO = [
    "AbortTransactionRecord",
    "AbortedTxn",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "NoOpRecord",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "ProducerSnapshot",
    "QuorumStateData",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataSnapshotRecord",
    "RemoteLogSegmentMetadataUpdateRecord",
    "RemotePartitionDeleteMetadataRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyDescriptionUpdateRequest",
    "StreamsGroupTopologyDescriptionUpdateResponse",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "TopicRecord",
    "TransactionLogKey",
    "TransactionLogValue",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UnregisterControllerRecord",
    "UnregisterControllerRequest",
    "UnregisterControllerResponse",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
]
# Versions of Kafka 4.4, of messages that kio has in earlier versions.
NEWER_THAN_KIO = {
    ("ApiVersionsRequest", 5),
    ("ApiVersionsResponse", 5),
    ("DeleteGroupsRequest", 3),
    ("DeleteGroupsResponse", 3),
    ("StreamsGroupDescribeRequest", 1),
    ("StreamsGroupDescribeResponse", 1),
    ("StreamsGroupHeartbeatRequest", 1),
    ("StreamsGroupHeartbeatResponse", 1),
    ("TxnOffsetCommitRequest", 6),
    ("TxnOffsetCommitResponse", 6),
}


@cache
def kio_classes() -> dict[tuple[str, int], Any]:
    """Return kio's classes by (message, version), from all of its schema modules."""
    classes: dict[tuple[str, int], Any] = {}
    for module in pkgutil.walk_packages(kio.schema.__path__, "kio.schema."):
        values: list[Any] = list(vars(importlib.import_module(module.name)).values())
        for value in values:
            own = isinstance(value, type) and value.__module__ == module.name and hasattr(value, "__version__")
            if own and value.__type__.name != "nested":
                classes[value.__name__, int(value.__version__)] = value
    return classes


def test_kio_has_all_messages_except_the_listed_ones() -> None:
    assert sorted({name for name, _ in ALL_CASES} - {name for name, _ in kio_classes()}) == sorted(MISSING_IN_KIO)
    missing = {case for case in ALL_CASES if case[0] in MISSING_IN_KIO}
    assert set(ALL_CASES) - set(kio_classes()) == missing | NEWER_THAN_KIO
    assert set(kio_classes()) <= set(ALL_CASES)


def element_class(field: dataclasses.Field[Any]) -> Any:
    """Return the class or primitive X of a field with type X, X | None, tuple[X, ...] or tuple[X, ...] | None."""
    kind: Any = field.type
    while getattr(kind, "__args__", None):
        kind = next(part for part in kind.__args__ if part not in {type(None), Ellipsis})
    return kind


class Pairing:
    """Pairs of fields of Odradek's and kio's classes, by position: both follow the order of the schema."""

    def __init__(self, ours: type[Struct], theirs: Any, version: int) -> None:
        self.version = version
        self.theirs: dict[type[Struct], Any] = {}
        self.fields: dict[tuple[type[Struct], str], dataclasses.Field[Any]] = {}
        self._pair(ours, theirs)

    def _pair(self, ours: type[Struct], theirs: Any) -> None:
        self.theirs[ours] = theirs
        rows = [row for row in field_rows(ours) if row.in_version(self.version)]
        for row, field in zip(rows, dataclasses.fields(theirs), strict=True):
            self.fields[ours, row.name] = field
            if row.struct is not None and row.struct not in self.theirs:
                self._pair(row.struct, element_class(field))

    def limits(self, ours: type[Struct], row: FieldRow) -> st.SearchStrategy[Any] | None:
        """Return a strategy for the values that kio's type of a field can represent, or None without a limit."""
        kind = self.fields[ours, row.name].metadata.get("kafka_type")
        if kind == "error_code":
            return st.sampled_from([int(code.value) for code in KioErrorCode])
        if kind == "timedelta_i64":
            return st.integers(-TIMEDELTA_MS_MAX, TIMEDELTA_MS_MAX)
        if kind == "datetime_i64":
            moments = st.integers(0, DATETIME_SECONDS_MAX).map(lambda seconds: seconds * 1000)
            optional = type(None) in getattr(self.fields[ours, row.name].type, "__args__", ())
            return st.just(-1) | moments if optional else moments
        return None

    def convert(self, message: Struct) -> Any:
        ours = type(message)
        values = {}
        for row in field_rows(ours):
            if row.in_version(self.version):
                field = self.fields[ours, row.name]
                kind = field.metadata.get("kafka_type", "")
                value: Any = getattr(message, row.name)
                if row.is_array and value is not None:
                    value = tuple(self._value(kind, item) for item in value)
                elif value is not None:
                    value = self._value(kind, value)
                values[field.name] = value
        return self.theirs[ours](**values)

    def _value(self, kind: str, value: Any) -> Any:
        if isinstance(value, Struct):
            return self.convert(value)
        if kind == "error_code":
            return KioErrorCode(value)
        if kind.startswith("timedelta"):
            return timedelta(milliseconds=value)
        if kind == "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(value // 1000, UTC)
        if kind == "uuid":
            return None if value == ZERO_UUID else value
        return value


@cache
def prepared(name: str, version: int) -> tuple[Pairing, st.SearchStrategy[Any]]:
    ours = ALL_MESSAGES[name]
    pairing = Pairing(ours, kio_classes()[name, version], version)
    return pairing, struct_values(ours, version, pairing.limits)


@pytest.mark.parametrize("name", sorted({name for name, _ in ALL_CASES} - set(MISSING_IN_KIO)))
def test_odradek_and_kio_decode_each_others_messages(name: str) -> None:
    ours = ALL_MESSAGES[name]

    @settings(
        max_examples=effort(EXAMPLES_PER_MESSAGE),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for version in versions(ours):
            if (name, version) in NEWER_THAN_KIO:
                continue
            pairing, values = prepared(name, version)
            message = data.draw(values, label=f"v{version}")
            theirs = pairing.convert(message)
            written_by_us = encode(message, version)
            assert entity_reader(type(theirs))(written_by_us, 0) == (theirs, len(written_by_us))
            buffer = io.BytesIO()
            entity_writer(type(theirs))(buffer, theirs)
            assert decode(ours, version, buffer.getvalue()) == message

    check()


@pytest.mark.parametrize("name", sorted({*MISSING_IN_KIO, *(name for name, _ in NEWER_THAN_KIO)}))
def test_messages_missing_in_kio_are_unchanged_after_a_round_trip(name: str) -> None:
    ours = ALL_MESSAGES[name]

    @settings(
        max_examples=effort(EXAMPLES_PER_MESSAGE), deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for version in versions(ours):
            message = data.draw(struct_values(ours, version), label=f"v{version}")
            assert decode(ours, version, encode(message, version)) == message

    check()
