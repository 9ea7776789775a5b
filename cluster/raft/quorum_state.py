"""The quorum-state file: Kafka's JSON, data_version 0 (voters from configuration, kraft.version 0).

The file of a voter that is not ORDINARY has one more field, which Kafka's reader ignores.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from odradek.cluster.raft.epoch_limits import EPOCH_LAST
from odradek.cluster.raft.messages import NO_NODE, HardState, Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA_VERSION: Final = 0
DATA_VERSION_MAX: Final = 1
FILE_NAME: Final = "quorum-state"
FILE_BYTES_MAX: Final = 64 * 1024
STANDING: Final = "odradekStanding"


class BadQuorumState(Exception):
    """The file is corrupt, or belongs to another set of voters. The node must stop: it could vote twice otherwise."""


def encode_quorum_state(state: HardState, voters: Sequence[int]) -> bytes:
    """Encode as one line without a newline, with the fields in Kafka's order."""
    document: dict[str, Any] = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": DATA_VERSION,
    }
    if state.standing is not Standing.ORDINARY:
        document[STANDING] = state.standing.value
    return _encode(document)


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes, voters: Sequence[int]) -> HardState:
    """Decode the file. Raise BadQuorumState if it is corrupt, or its voters are not the configured `voters`."""
    document = _parse(data)
    version = _int(document, "data_version")
    if not 0 <= version <= DATA_VERSION_MAX:
        raise BadQuorumState(f"{FILE_NAME}: data_version {version} is not supported (0 to {DATA_VERSION_MAX})")
    if version == 0 and document.get("currentVoters"):
        stored = document["currentVoters"]
        if not isinstance(stored, list) or not all(isinstance(voter, dict) for voter in stored):
            raise BadQuorumState(f"{FILE_NAME}: currentVoters is not a list of voters")
        found = sorted(_int(voter, "voterId") for voter in stored)
        if found != sorted(voters):
            raise BadQuorumState(
                f"{FILE_NAME}: written for the voters {found}, but {sorted(voters)} are configured:"
                " set controller.quorum.voters to the former value"
            )
    state = HardState(
        _int(document, "leaderEpoch"),
        _int(document, "leaderId"),
        _int(document, "votedId"),
        _standing(document),
    )
    if state.epoch < 0 or state.leader_id < NO_NODE or state.voted_id < NO_NODE:
        raise BadQuorumState(f"{FILE_NAME}: a negative epoch or node id")
    check_stored_epoch(state.epoch, f"leaderEpoch of {FILE_NAME}")
    return state


def with_standing_lost(data: bytes) -> bytes:
    """Return the content of the file with the standing LOST if that of the voter is ORDINARY, otherwise `data`.

    Raise BadQuorumState if the file is corrupt. No other field changes, so the caller needs no voters.
    """
    document = _parse(data)
    if _standing(document) is not Standing.ORDINARY:
        return data
    return _encode(document | {STANDING: Standing.LOST.value})


def check_stored_epoch(epoch: int, place: str) -> None:
    """Raise BadQuorumState if `epoch`, which was read from `place`, leaves no epoch for an election."""
    if epoch >= EPOCH_LAST:
        raise BadQuorumState(
            f"epoch {epoch} in {place} is not below the maximum of {EPOCH_LAST}, so it is forged or damaged."
            " Stop all voters and follow the section on impossible epochs in docs/operations.md."
        )


def _standing(document: dict[str, Any]) -> Standing:
    stored = document.get(STANDING, Standing.ORDINARY.value)
    if stored not in [standing.value for standing in Standing]:
        raise BadQuorumState(f"{FILE_NAME}: unknown value {stored!r} of {STANDING}")
    return Standing(stored)


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > FILE_BYTES_MAX:
        raise BadQuorumState(f"{FILE_NAME}: {len(data)} bytes exceed the maximum of {FILE_BYTES_MAX}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadQuorumState(f"{FILE_NAME}: {error}") from None
    if not isinstance(document, dict):
        raise BadQuorumState(f"{FILE_NAME}: not a JSON object")
    return document


def _int(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadQuorumState(f"{FILE_NAME}: {name} is missing or not a number")
    return value
