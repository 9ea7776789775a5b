"""Replay of the records of ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.metadata.errors import InconsistentMetadata, UnsupportedMetadata
from odradek.cluster.metadata.records import AccessControlEntryRecord
from odradek.protocol.acls import Acl, AclOperation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.cluster.metadata import records as r
    from odradek.cluster.metadata.changes import Changes


def acl_record(acl_id: UUID, acl: Acl) -> AccessControlEntryRecord:
    """Return the record that adds `acl`."""
    return AccessControlEntryRecord(
        acl_id, acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission
    )


def replay_acl(changes: Changes, record: r.AccessControlEntryRecord) -> None:
    if changes.acls.get(record.id) is not None:
        raise InconsistentMetadata(f"an ACL with the id {record.id} exists already")
    changes.acls.put(record.id, _acl(record))


def _acl(record: r.AccessControlEntryRecord) -> Acl:
    """Return the ACL of a record. Raise UnsupportedMetadata: an ignored ACL could grant access."""
    try:
        return Acl(
            ResourceType(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            AclOperation(record.operation),
            Permission(record.permission_type),
        )
    except ValueError as error:
        raise UnsupportedMetadata(f"ACL {record.id} is not supported by this version: {error}") from error


def replay_remove_acl(changes: Changes, record: r.RemoveAccessControlEntryRecord) -> None:
    if changes.acls.get(record.id) is None:
        raise InconsistentMetadata(f"no ACL has the id {record.id}")
    changes.acls.remove(record.id)
