"""The checker of hostile requests, the repertoire of attacks, and runs with a hostile client."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.hostile import CLOSED, RESPONDED, UNANSWERED, UNREACHABLE, HostileRequest, check_hostile
from tests.sim.history import History
from tests.sim.options.run_options import generate_options
from tests.sim.planted.bugs import PLANTED, finding_of, run_with
from tests.sim.run import run_seed
from tests.support.hostile import ADMIN_CLIENT_ID, ON_OTHERS, Repertoire
from tests.support.hostile_attack import FORGED, INTERNAL_RECORD, KINDS, LOGIN, SIMULATED, VOTES, Attack, is_refused
from tests.support.hostile_forged import FORGED as BUILDERS
from tests.support.hostile_forged import Victim

ROUNDS = 30
HOSTILE_SEED = 3


def repertoire(seed: int) -> Repertoire:
    victim = Victim((1, 2, 3), "cluster", {"ledger": (UUID(int=7), 4), "__transaction_state": (UUID(int=8), 3)})
    return Repertoire(Random(seed), victim, SIMULATED)


def findings(request: HostileRequest) -> list[str]:
    evidence = Evidence(History(), {})
    evidence.hostile = [request]
    return list(check_hostile(evidence))


@pytest.mark.parametrize("outcome", [RESPONDED, CLOSED, UNREACHABLE])
def test_request_that_ends_has_no_finding(outcome: str) -> None:
    assert findings(HostileRequest(FORGED, "VoteRequest", "broker-1.sim#1", outcome)) == []


def test_request_without_an_end_is_a_finding() -> None:
    request = HostileRequest(FORGED, "VoteRequest", "broker-1.sim#1", UNANSWERED)
    (finding,) = findings(request)
    assert finding.startswith("I17 broker-1.sim#1 neither responded nor closed")


def test_forged_request_that_is_carried_out_is_a_finding() -> None:
    request = HostileRequest(FORGED, "VoteRequest", "broker-1.sim#1", RESPONDED, carried_out=True)
    (finding,) = findings(request)
    assert "carried out a request" in finding


@pytest.mark.parametrize("kind", [*KINDS, VOTES])
def test_attacks_of_each_kind_depend_on_the_seed_alone(kind: str) -> None:
    def attacks(seed: int) -> list[Attack]:
        made = repertoire(seed)
        return [made.make(kind) for _ in range(ROUNDS)]

    first = attacks(1)
    assert first == attacks(1)
    assert {attack.kind for attack in first} == {kind}
    assert len(set(first)) > 1


def test_forged_requests_and_records_for_internal_topics_must_be_refused() -> None:
    made = repertoire(1)
    for kind in (FORGED, INTERNAL_RECORD):
        attacks = [made.make(kind) for _ in range(ROUNDS)]
        assert all(attack.refused and attack.requests == 1 for attack in attacks)
    assert any(ADMIN_CLIENT_ID.encode() in attack.data for attack in attacks)
    assert made.make(LOGIN).closed


@pytest.mark.parametrize(
    ("topic", "key"),
    [(b"__transaction_state", b"\0\0\0\x09hostile-"), (b"__consumer_offsets", b"\0\2\0\x09hostile-")],
)
def test_records_for_internal_topics_include_values_that_only_a_coordinator_may_write(topic: bytes, key: bytes) -> None:
    made = repertoire(1)
    attacks = [made.make(INTERNAL_RECORD) for _ in range(2 * ROUNDS)]
    assert any(key in attack.data and topic in attack.data for attack in attacks)


def test_every_forged_request_is_sent() -> None:
    made = repertoire(2)
    names = {made.make(FORGED).what for _ in range(ROUNDS * len(BUILDERS))}
    assert len(names) == len(BUILDERS) - 2  # three builders make fetches


def test_generated_values_are_not_sent_to_apis_that_change_resources_of_others() -> None:
    made = repertoire(3)
    names = {made.make(kind).what for kind in ("damaged request", "invalid values") for _ in range(10 * ROUNDS)}
    assert not names & set(ON_OTHERS)


def test_response_with_any_error_is_a_refusal() -> None:
    def response(error: int) -> WriteTxnMarkersResponse:
        partition = WritableTxnMarkerPartitionResult(0, error)
        return WriteTxnMarkersResponse([WritableTxnMarkerResult(1, [WritableTxnMarkerTopicResult("t", [partition])])])

    assert is_refused(response(48))
    assert not is_refused(response(0))


@pytest.mark.parametrize("shared_listener", [False, True])
def test_run_with_a_hostile_client_has_no_findings(shared_listener: bool) -> None:
    options = generate_options(HOSTILE_SEED, brokers=3, hostile=True, shared_listener=shared_listener)
    result = run_seed(HOSTILE_SEED, options=options)
    assert result.findings == []
    assert sum(count for name, count in result.counters.items() if name.startswith("hostile: ")) > ROUNDS
    assert (f"hostile: {VOTES}" in result.counters) == shared_listener


def test_readable_value_that_is_appended_to_an_internal_topic_is_a_finding() -> None:
    (bug,) = [bug for bug in PLANTED if bug.title == "readable value of a client appended to an internal topic"]
    assert (finding_of(bug, run_with(bug, 0)) or "").startswith("I17 ")


def test_run_ends_at_the_first_forged_request_that_is_carried_out() -> None:
    (bug,) = [bug for bug in PLANTED if bug.title == "any marker of a client written"]
    result = run_with(bug, 0)
    assert result.findings[0].startswith("I17 ")
    assert any("CancelledError" in finding for finding in result.findings)
