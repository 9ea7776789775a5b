"""Replay of the records of SCRAM credentials (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.metadata.errors import InconsistentMetadata
from odradek.cluster.metadata.records import UserScramCredentialRecord
from odradek.protocol.sasl.scram import Credential

if TYPE_CHECKING:
    from odradek.cluster.metadata import records as r
    from odradek.cluster.metadata.changes import Changes
    from odradek.cluster.metadata.image import ScramKey


def scram_record(key: ScramKey, credential: Credential) -> UserScramCredentialRecord:
    """Return the record that sets the credential of a user for a mechanism."""
    name, mechanism = key
    return UserScramCredentialRecord(
        name, mechanism, credential.salt, credential.stored_key, credential.server_key, credential.iterations
    )


def replay_scram(changes: Changes, record: r.UserScramCredentialRecord) -> None:
    changes.scram.put(
        (record.name, record.mechanism),
        Credential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations),
    )


def replay_remove_scram(changes: Changes, record: r.RemoveUserScramCredentialRecord) -> None:
    if changes.scram.get((record.name, record.mechanism)) is None:
        raise InconsistentMetadata(f"the user {record.name} has no SCRAM credential of mechanism {record.mechanism}")
    changes.scram.remove((record.name, record.mechanism))
