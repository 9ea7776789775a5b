"""The checker of delegation tokens, and the reader of their records."""

import pytest

from odradek.cluster.metadata.records import RemoveDelegationTokenRecord, encode_record
from odradek.cluster.metadata.replay.tokens import token_record
from odradek.cluster.metadata.tokens import DelegationToken
from tests.sim.checkers.batches import read_batches
from tests.sim.checkers.metadata_log import MetadataModel
from tests.sim.checkers.tokens import TokenChange, TokenEvidence, TokenLogin, token_findings
from tests.sim.workloads.encode import encode_batch

CHANGES = [TokenChange(4, "a", 1_000), TokenChange(6, "a", 2_000), TokenChange(8, "a", None)]


def test_records_of_the_metadata_log_are_read() -> None:
    token = DelegationToken("User:alice", "User:alice", ("User:bob", "User:eve"), 1, max_ms=900, expires_ms=1_000)
    records = (token_record("id", token), RemoveDelegationTokenRecord("id"))
    model = MetadataModel()
    (batch,) = read_batches(encode_batch([(None, encode_record(record)) for record in records], timestamp=0))
    model.apply(batch)
    assert model.token_changes == [TokenChange(0, "id", 900), TokenChange(1, "id", None)]


@pytest.mark.parametrize(
    ("first", "last", "wall_ms", "valid"),
    [
        (4, 5, 1_000, True),
        (4, 5, 1_001, False),
        (4, 6, 1_001, True),
        (6, 7, 2_001, False),
        (7, 8, 1_500, True),
        (8, 9, 500, False),
        (3, 3, 500, False),
    ],
)
def test_login_outside_of_the_validity_is_a_finding(first: int, last: int, wall_ms: int, valid: bool) -> None:
    evidence = TokenEvidence(CHANGES, [TokenLogin("broker 1", "a", first, last, wall_ms)])
    assert [finding[:3] for finding in token_findings(evidence)] == ([] if valid else ["I20"])


def test_request_after_the_end_of_the_session_is_a_finding() -> None:
    (finding,) = token_findings(TokenEvidence(outlived=["broker 2"]))
    assert finding == "I20 broker 2 served a request after the end of a session by a token"
