"""CreateAcls and RemoveAcls: decisions of the controller."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from odradek.cluster.controller.commands import CreateAcls, RemoveAcls
from odradek.cluster.controller.messages.settings import AclResult, NewAcl
from odradek.cluster.controller.slices import RECORDS_PER_SLICE, slices_of
from odradek.cluster.metadata.records import AccessControlEntryRecord, FeatureLevelRecord, decode_record
from odradek.protocol.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.raft_memory import ControllerRig

if TYPE_CHECKING:
    from odradek.cluster.controller.state import ControllerState

E = ErrorCode
NO_COLON = (
    "Could not parse principal from `alice` (no colon is present separating the principal type from the principal name)"
)
NEW = NewAcl(2, "t", 3, "User:alice", "*", 4, 3)
ACL = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", AclOperation.WRITE, Permission.ALLOW)


def state_of(rig: ControllerRig) -> ControllerState:
    return rig.core.state


def test_acls_are_created_once_and_removed_by_id() -> None:
    rig = ControllerRig().with_brokers(1)
    other = replace(NEW, permission=2)
    assert rig.do(CreateAcls((NEW, other, NEW))) == (AclResult(), AclResult(), AclResult())
    acls = state_of(rig).image.acls
    assert list(acls.values()) == [ACL, ACL._replace(permission=Permission.DENY)]
    assert state_of(rig).acl_ids == {acl: acl_id for acl_id, acl in acls.items()}
    before = len(rig.log)
    assert rig.do(CreateAcls((NEW,))) == (AclResult(),)
    assert len(rig.log) == before, "no record for an ACL that exists"
    first = next(iter(acls))
    assert rig.do(RemoveAcls((first, first, UUID(int=5)))) == (first,)
    assert list(state_of(rig).image.acls) == list(acls)[1:]
    assert ACL not in state_of(rig).acl_ids
    assert rig.do(CreateAcls((NEW,))) == (AclResult(),)
    assert ACL in state_of(rig).acl_ids


def test_acls_of_the_image_are_known_to_a_new_controller() -> None:
    rig, successor = ControllerRig().with_brokers(1), ControllerRig()
    rig.do(CreateAcls((NEW,)))
    state_of(successor).start_from(state_of(rig).image)
    assert state_of(successor).acl_ids == state_of(rig).acl_ids
    assert successor.do(CreateAcls((NEW,))) == (AclResult(),)
    assert successor.log == [], "no record for an ACL that exists"


def test_records_are_those_of_kafka() -> None:
    rig = ControllerRig().with_brokers(1)
    rig.do(CreateAcls((NEW,)))
    value = rig.log[-1].value
    assert value is not None
    record = decode_record(value)
    assert isinstance(record, AccessControlEntryRecord)
    assert (record.resource_type, record.pattern_type, record.operation, record.permission_type) == (2, 3, 4, 3)
    assert (record.resource_name, record.principal, record.host) == ("t", "User:alice", "*")
    assert bytes(value)[:3] == b"\x01\x12\x00"


@pytest.mark.parametrize(
    ("new", "error", "message"),
    [
        (replace(NEW, resource=1), E.INVALID_REQUEST, "Invalid resourceType ANY"),
        (replace(NEW, resource=9), E.INVALID_REQUEST, "Invalid resourceType UNKNOWN"),
        (replace(NEW, pattern=1), E.INVALID_REQUEST, "Invalid patternType ANY"),
        (replace(NEW, pattern=2), E.INVALID_REQUEST, "Invalid patternType MATCH"),
        (replace(NEW, operation=1), E.INVALID_REQUEST, "Invalid operation ANY"),
        (replace(NEW, operation=99), E.INVALID_REQUEST, "Invalid operation UNKNOWN"),
        (replace(NEW, permission=1), E.INVALID_REQUEST, "Invalid permissionType ANY"),
        (replace(NEW, name=""), E.INVALID_REQUEST, "Invalid empty resource name"),
        (
            replace(NEW, resource=4, name="cluster"),
            E.INVALID_REQUEST,
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            replace(NEW, principal="alice"),
            E.INVALID_REQUEST,
            NO_COLON,
        ),
        (replace(NEW, host=""), E.INVALID_REQUEST, "Host pattern cannot be null or empty"),
        (
            replace(NEW, host="10.0.0.0/40"),
            E.INVALID_REQUEST,
            "Invalid CIDR notation '10.0.0.0/40': Value [40] not in range [0,32]",
        ),
    ],
)
def test_invalid_acl_is_refused_with_the_text_of_kafka(new: NewAcl, error: ErrorCode, message: str) -> None:
    rig = ControllerRig().with_brokers(1)
    assert rig.do(CreateAcls((new, NEW))) == (AclResult(error, message), AclResult())
    assert list(state_of(rig).image.acls.values()) == [ACL]


@pytest.mark.parametrize(("level", "error"), [(31, E.UNSUPPORTED_VERSION), (32, E.NONE)])
def test_network_as_a_host_needs_its_metadata_version(level: int, error: ErrorCode) -> None:
    rig = ControllerRig().with_brokers(1)
    state_of(rig).replay(len(rig.log), 1, FeatureLevelRecord("metadata.version", level))
    (result,) = rig.do(CreateAcls((replace(NEW, host="10.0.0.0/8"),)))
    assert result.error is error


def test_many_acls_are_divided_into_slices_and_too_many_are_refused() -> None:
    rig = ControllerRig().with_brokers(1)
    many = tuple(replace(NEW, name=f"t-{number}") for number in range(10_001))
    parts = slices_of(state_of(rig), CreateAcls(many[:-1]))
    assert {len(part.command.acls) for part in parts if isinstance(part.command, CreateAcls)} == {RECORDS_PER_SLICE}
    with pytest.raises(Refusal) as refused:
        slices_of(state_of(rig), CreateAcls(many))
    assert refused.value.error is E.POLICY_VIOLATION
    assert len(slices_of(state_of(rig), RemoveAcls(tuple(UUID(int=n) for n in range(250))))) == 3
