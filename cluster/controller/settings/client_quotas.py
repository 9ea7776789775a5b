"""Client quotas: validation and records (KIP-13, KIP-124, KIP-546, KIP-599)."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.messages.settings import QuotaChange, QuotaResult
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.image import quota_entity
from odradek.cluster.metadata.records import ClientQuotaEntity, ClientQuotaRecord
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.cluster.controller.commands import AlterClientQuotas
    from odradek.cluster.metadata.records import MetadataRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
INTEGRAL_TOLERANCE: Final = 1e-6


@frozen_dataclass(frozen=True, slots=True)
class Key:
    """A quota key.

    `high`: the maximum of an integral key; None: fractions are allowed. `kind`: the type in Kafka's messages.
    """

    kind: str
    high: float | None = None


OF_CLIENTS: Final[Mapping[str, Key]] = {
    PRODUCER_BYTE_RATE: Key("a LONG", float(2**63 - 1)),
    CONSUMER_BYTE_RATE: Key("a LONG", float(2**63 - 1)),
    REQUEST_PERCENTAGE: Key("a DOUBLE"),
    CONTROLLER_MUTATION_RATE: Key("a DOUBLE"),
}
OF_ADDRESSES: Final[Mapping[str, Key]] = {CONNECTION_CREATION_RATE: Key("an INT", float(2**31 - 1))}


def alter_client_quotas(
    state: ControllerState, command: AlterClientQuotas
) -> ControllerResult[tuple[QuotaResult, ...]]:
    """Return one result per entity. An invalid entity does not affect the valid ones."""
    results: list[QuotaResult] = []
    records: list[MetadataRecord] = []
    seen: dict[tuple[tuple[str, str | None], ...], None] = {}
    for change in command.entities:
        entity = quota_entity(change.entity)
        try:
            if entity in seen:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(change)}")
            seen[entity] = None
            records += _alter(state, change)
        except Refusal as refusal:
            results.append(QuotaResult(change.entity, refusal.error, refusal.message))
        else:
            results.append(QuotaResult(change.entity))
    return ControllerResult(tuple(results), () if command.validate_only else tuple(records))


def _alter(state: ControllerState, change: QuotaChange) -> list[MetadataRecord]:
    _check_entity(change)
    keys = _keys(dict(change.entity))
    entity = quota_entity(change.entity)
    current = state.image.client_quotas.get(entity, {})
    named = [ClientQuotaEntity(kind, name) for kind, name in entity]
    records: list[MetadataRecord] = []
    if len(dict(change.changes)) != len(change.changes):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Duplicate quota key, not updating quota for {_shown(change)}")
    for key, value in change.changes:
        if value is None:
            if key in current:
                records.append(ClientQuotaRecord(named, key, remove=True))
            continue
        _check_value(keys, key, value)
        if current.get(key) != value:
            records.append(ClientQuotaRecord(named, key, value))
    return records


def _check_entity(change: QuotaChange) -> None:
    if not change.entity:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    seen: dict[str, None] = {}
    for kind, name in change.entity:
        if kind in seen:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in {USER, CLIENT_ID, IP}:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
        seen[kind] = None


def _keys(entity: Mapping[str, str | None]) -> Mapping[str, Key]:
    """Return the quota keys that are valid for the entity."""
    if IP not in entity:
        return OF_CLIENTS
    if len(entity) > 1:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        )
    address = entity[IP]
    if address is not None and not _is_address(address):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host.")
    return OF_ADDRESSES


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, Key], key: str, value: float) -> None:
    known = keys.get(key)
    if known is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not value > 0:  # also NaN
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if known.high is not None:
        if value > known.high:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {known.kind}.")
        if value % 1.0 > INTEGRAL_TOLERANCE:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def _shown(change: QuotaChange) -> str:
    return ", ".join(f"{kind}={name}" for kind, name in change.entity)
