"""Features: supported levels, the first records of an empty log, and UpdateFeatures (KIP-584)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.brokers.active import begin_sessions
from odradek.cluster.controller.configs import cluster_min_in_sync
from odradek.cluster.controller.leaders import new_partition_epoch, partitions_with
from odradek.cluster.controller.messages.settings import FeatureResult
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.errors import UnsupportedMetadata
from odradek.cluster.metadata.image import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    MetadataImage,
    VersionRange,
)
from odradek.cluster.metadata.records import (
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from odradek.cluster.metadata.replay.scram import scram_record
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.cluster.controller.commands import Bootstrap, UpdateFeatures
    from odradek.cluster.controller.messages.settings import FeatureUpdate

METADATA_VERSION_4_3: Final = 30
METADATA_VERSION_4_4: Final = 33
METADATA_CHANGES: Final = frozenset({30, 32, 33})
"""Levels of `metadata.version` since which the log may contain something that lower levels do not know."""

# Voters come from configuration (kraft.version 0).
SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(METADATA_VERSION_4_3, METADATA_VERSION_4_4),
    KRAFT_VERSION: VersionRange(0, 0),
    TRANSACTION_VERSION: VersionRange(0, 2),
    GROUP_VERSION: VersionRange(0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: VersionRange(0, 1),
}
UNSUPPORTED_FEATURES: Final = ("share.version", "streams.version")
"""Features of Kafka that Odradek does not have. A request to disable them succeeds."""
OFF: Final = VersionRange(0, 0)
BOOTSTRAP_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: METADATA_VERSION_4_4,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
BOOTSTRAP_TRANSACTION: Final = "Bootstrap records"


def bootstrap(state: ControllerState, command: Bootstrap) -> ControllerResult[None]:
    """Return the first batch of an empty log, and nothing for another log. `levels` override the defaults."""
    soft = begin_sessions(state, command.at_ms)
    if METADATA_VERSION in state.image.features:
        return ControllerResult(None, soft=soft)
    levels = {**BOOTSTRAP_LEVELS, **command.levels}
    for name, level in levels.items():
        reason = _not_supported(name, level)
        if reason is not None:
            raise Refusal(
                ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}"
            )
    others = [name for name in sorted(levels) if name != METADATA_VERSION and levels[name] > 0]
    records: list[MetadataRecord] = [BeginTransactionRecord(name=BOOTSTRAP_TRANSACTION)]
    records += [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in (METADATA_VERSION, *others)]
    if levels[ELIGIBLE_LEADER_REPLICAS_VERSION] > 0:
        records += cluster_min_in_sync(state)
    records += [scram_record(key, credential) for key, credential in command.scram.items()]
    records.append(EndTransactionRecord())
    return ControllerResult(None, tuple(records), soft=soft)


def check_supported(image: MetadataImage) -> None:
    """Raise UnsupportedMetadata if this version does not support a finalized feature level."""
    for name, level in image.features.items():
        reason = _not_supported(name, level)
        if reason is not None:
            raise UnsupportedMetadata(f"metadata log: feature {name} is finalized at level {level}. {reason}")


def update_features(state: ControllerState, command: UpdateFeatures) -> ControllerResult[tuple[FeatureResult, ...]]:
    results = []
    records: list[MetadataRecord] = []
    for update in command.updates:
        message = _refused(state, update)
        if message is None:
            results.append(FeatureResult(update.name))
            if update.max_level != state.image.feature(update.name):
                records.append(FeatureLevelRecord(name=update.name, feature_level=update.max_level))
        else:
            results.append(FeatureResult(update.name, ErrorCode.INVALID_UPDATE_VERSION, message))
    failed = next((result for result in results if result.error is not ErrorCode.NONE), None)
    if failed is not None:
        text = f"The update failed for all features since the following feature had an error: {failed.message}"
        raise Refusal(failed.error, text)
    for update in command.updates:
        if update.name == ELIGIBLE_LEADER_REPLICAS_VERSION:
            records += _switch_elr(state, on=update.max_level > 0)
    return ControllerResult(tuple(results), () if command.validate_only else tuple(records))


def _switch_elr(state: ControllerState, *, on: bool) -> list[MetadataRecord]:
    """Return the records that enable or disable ELR.

    A new partition epoch ensures that leaders apply the common `min.insync.replicas` first (see `alter_configs`).
    """
    if not on:
        return [ClearElrRecord()]
    if state.elr_enabled:
        return []
    partitions = partitions_with(state, lambda _: True)
    return [*cluster_min_in_sync(state), *(new_partition_epoch(topic, partition) for topic, partition in partitions)]


def _refused(state: ControllerState, update: FeatureUpdate) -> str | None:
    """Return Kafka's message if the update is refused."""
    reason = _invalid(state, update)
    if reason is not None:
        return f"Invalid update version {update.max_level} for feature {update.name}. {reason}"
    if update.name == METADATA_VERSION:
        return _refused_downgrade(state.image.feature(METADATA_VERSION), update)
    return None


def _refused_downgrade(current: int, update: FeatureUpdate) -> str | None:
    """Return Kafka's message if the log may contain records that the lower `metadata.version` does not know."""
    if not any(level in METADATA_CHANGES for level in range(update.max_level + 1, current + 1)):
        return None
    reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    if update.unsafe:
        reason = "Unsafe metadata downgrade is not supported in this version."
    return f"Unsupported metadata.version downgrade from {current} to {update.max_level}. {reason}"


def _invalid(state: ControllerState, update: FeatureUpdate) -> str | None:
    image = state.image
    current = image.feature(update.name)
    if update.max_level < 0:
        return "A feature version cannot be less than 0."
    reason = _not_supported(update.name, update.max_level, f"Local controller {state.config.node_id}")
    if reason is not None:
        return reason
    for broker in image.brokers.values():
        reason = _beyond(broker.features.get(update.name, OFF), update.max_level, f"Broker {broker.broker_id}")
        if reason is not None:
            return reason
    for controller in image.controllers.values():
        subject = f"Controller {controller.controller_id}"
        reason = _beyond(controller.features.get(update.name, OFF), update.max_level, subject)
        if reason is not None and controller.controller_id != state.config.node_id:
            return reason
    if update.max_level < current and not update.allow_downgrade:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if update.max_level > current and update.allow_downgrade:
        return "Can't downgrade to a newer version."
    if update.name not in SUPPORTED_FEATURES and update.name not in UNSUPPORTED_FEATURES:
        return f"Feature {update.name} not found."
    if update.name == ELIGIBLE_LEADER_REPLICAS_VERSION and update.max_level == 0:
        return _needs_elr(image)
    return None


def _needs_elr(image: MetadataImage) -> str | None:
    """Return why ELR cannot be disabled.

    Without ELR, a partition with an empty ISR would have no candidate for leader.
    """
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            if not partition.isr:
                return f"Partition {topic.name}-{partition.index} has no replica in sync; it needs the eligible ones."
    return None


def _not_supported(name: str, level: int, subject: str = "This version") -> str | None:
    return _beyond(SUPPORTED_FEATURES.get(name, OFF), level, subject)


def _beyond(supported: VersionRange, level: int, subject: str) -> str | None:
    """Return Kafka's message if `subject` does not support `level`."""
    if supported.min <= level <= supported.max:
        return None
    if not supported.max:
        return f"{subject} does not support this feature."
    levels = f"{supported.min}-{supported.max}" if supported.min < supported.max else f"{supported.max}"
    return f"{subject} only supports versions {levels}"
