"""ACLs: validation and records (KIP-140, KIP-290)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.cluster.authorization.hosts import InvalidNetwork, parse_network
from odradek.cluster.controller.messages.settings import AclResult
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.image import METADATA_VERSION
from odradek.cluster.metadata.records import RemoveAccessControlEntryRecord
from odradek.cluster.metadata.replay.acls import acl_record
from odradek.protocol.acls import (
    CLUSTER_RESOURCE,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.cluster.controller.commands import CreateAcls, RemoveAcls
    from odradek.cluster.controller.messages.settings import NewAcl
    from odradek.cluster.metadata.records import MetadataRecord

NETWORKS_METADATA_VERSION: Final = 32
"""Minimum metadata.version (4.4-IV1) with networks as hosts of ACLs."""
C = TypeVar("C", bound=IntEnum)


def create_acls(state: ControllerState, command: CreateAcls) -> ControllerResult[tuple[AclResult, ...]]:
    """Return one result per ACL. An ACL that exists already gets no second record."""
    results: list[AclResult] = []
    records: dict[Acl, MetadataRecord] = {}
    networks = state.image.feature(METADATA_VERSION) >= NETWORKS_METADATA_VERSION
    for new in command.acls:
        try:
            acl = _checked(new, networks=networks)
        except Refusal as refusal:
            results.append(AclResult(refusal.error, refusal.message))
            continue
        results.append(AclResult())
        if acl not in state.acl_ids and acl not in records:
            records[acl] = acl_record(_new_id(state), acl)
    return ControllerResult(tuple(results), tuple(records.values()))


def remove_acls(state: ControllerState, command: RemoveAcls) -> ControllerResult[tuple[UUID, ...]]:
    """Return the ids whose ACLs exist and are removed."""
    removed = tuple(acl_id for acl_id in dict.fromkeys(command.ids) if acl_id in state.image.acls)
    return ControllerResult(removed, tuple(RemoveAccessControlEntryRecord(acl_id) for acl_id in removed))


def _new_id(state: ControllerState) -> UUID:
    while True:
        candidate = state.new_uuid()
        if candidate not in state.image.acls:
            return candidate


def _checked(new: NewAcl, *, networks: bool) -> Acl:
    """Return the ACL. Raise Refusal with the text of Apache Kafka's AclApis and AclControlManager."""
    if new.resource == ResourceType.CLUSTER and new.name != CLUSTER_RESOURCE:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_RESOURCE}")
    if not new.name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    resource = _code(ResourceType, new.resource, (ResourceType.ANY,), "resourceType")
    pattern = _code(PatternType, new.pattern, (PatternType.ANY, PatternType.MATCH), "patternType")
    operation = _code(AclOperation, new.operation, (AclOperation.ANY,), "operation")
    permission = _code(Permission, new.permission, (Permission.ANY,), "permissionType")
    if ":" not in new.principal:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Could not parse principal from `{new.principal}` (no colon is present separating the principal type"
            " from the principal name)",
        )
    _check_host(new.host, networks=networks)
    return Acl(resource, new.name, pattern, new.principal, new.host, operation, permission)


def _code(codes: type[C], value: int, filters: tuple[C, ...], name: str) -> C:
    """Return the enumerated value of a code that an ACL can have. `filters` are for filters alone."""
    try:
        code = codes(value)
    except ValueError:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Invalid {name} UNKNOWN") from None
    if code in filters:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Invalid {name} {code.name}")
    return code


def _check_host(host: str, *, networks: bool) -> None:
    if not host:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty")
    if host == WILDCARD or "/" not in host:
        return
    if not networks:
        raise Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    try:
        parse_network(host)
    except InvalidNetwork as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {error}") from error
