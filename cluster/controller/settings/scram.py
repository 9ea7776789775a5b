"""SCRAM credentials: validation and records (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.messages.settings import ScramResult
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.records import RemoveUserScramCredentialRecord
from odradek.cluster.metadata.replay.scram import scram_record
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_BY_CODE, Credential

if TYPE_CHECKING:
    from odradek.cluster.controller.commands import AlterScramCredentials
    from odradek.cluster.controller.messages.settings import ScramChange
    from odradek.cluster.metadata.records import MetadataRecord

SALT_BYTES_MAX: Final = 1_024
"""Maximum bytes of a salt. Kafka's clients generate 26. Each broker holds all credentials in memory."""


def alter_scram_credentials(
    state: ControllerState, command: AlterScramCredentials
) -> ControllerResult[tuple[ScramResult, ...]]:
    """Return one result per user. All changes of a user that the request names twice are refused."""
    by_user: dict[str, list[ScramChange]] = {}
    for change in command.changes:
        by_user.setdefault(change.user, []).append(change)
    results: list[ScramResult] = []
    records: list[MetadataRecord] = []
    for user, changes in by_user.items():
        try:
            record = _record(state, changes[0])
            if len(changes) > 1:
                message = "A user credential cannot be altered twice in the same request"
                raise Refusal(ErrorCode.DUPLICATE_RESOURCE, message)
        except Refusal as refusal:
            results.append(ScramResult(user, refusal.error, refusal.message))
        else:
            results.append(ScramResult(user))
            records.append(record)
    return ControllerResult(tuple(results), tuple(records))


def _record(state: ControllerState, change: ScramChange) -> MetadataRecord:
    """Return the record of a change. Raise Refusal with the text of Apache Kafka's ScramControlManager."""
    if not change.user:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = SCRAM_BY_CODE.get(change.mechanism)
    if mechanism is None:
        raise Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    key, new = (change.user, change.mechanism), change.new
    if new is None:
        if key not in state.image.scram:
            message = "Attempt to delete a user credential that does not exist"
            raise Refusal(ErrorCode.RESOURCE_NOT_FOUND, message)
        return RemoveUserScramCredentialRecord(change.user, change.mechanism)
    if new.iterations < ITERATIONS_MIN:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if new.iterations > ITERATIONS_MAX:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(new.salt) > SALT_BYTES_MAX:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The salt has more than {SALT_BYTES_MAX} bytes")
    return scram_record(key, Credential.of_salted(mechanism, new.salted_password, new.salt, new.iterations))
