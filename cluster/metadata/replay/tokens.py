"""Replay of the records of delegation tokens (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.metadata.records import DelegationTokenRecord
from odradek.cluster.metadata.tokens import DelegationToken

if TYPE_CHECKING:
    from odradek.cluster.metadata import records as r
    from odradek.cluster.metadata.changes import Changes


def token_record(token_id: str, token: DelegationToken) -> DelegationTokenRecord:
    """Return the record that creates or renews a token."""
    return DelegationTokenRecord(
        token.owner,
        token.requester,
        list(token.renewers),
        token.issued_ms,
        token.max_ms,
        token.expires_ms,
        token_id,
    )


def replay_token(changes: Changes, record: DelegationTokenRecord) -> None:
    changes.tokens.put(
        record.token_id,
        DelegationToken(
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        ),
    )


def replay_remove_token(changes: Changes, record: r.RemoveDelegationTokenRecord) -> None:
    """Remove a token. Ignore an unknown one: Kafka's controller can write the record twice."""
    changes.tokens.remove(record.token_id)
