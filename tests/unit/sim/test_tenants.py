"""Runs with SASL and ACLs: the checkers of ACLs and of isolation, the users, the options, and a short run."""

from dataclasses import replace

import pytest

from odradek.protocol.acls import AclOperation, PatternType, Permission, ResourceType
from tests.sim.checkers import acls as codes
from tests.sim.checkers.acls import (
    Access,
    AclChange,
    AclEvidence,
    AclHistory,
    AclRow,
    Applied,
    Decided,
    acl_findings,
    is_allowed,
)
from tests.sim.checkers.evidence import Evidence, GroupEvidence
from tests.sim.checkers.group_log import Committed
from tests.sim.checkers.groups import check_offsets_monotonic
from tests.sim.checkers.isolation import Intrusion, TenantEvidence, check_isolation, tenant_findings
from tests.sim.checkers.metadata_log import CONFIG, QUOTA, REMOVE_TOPIC, SCRAM, Setting
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.cluster.users import client_id_of, first_credentials, user_of
from tests.sim.history import History
from tests.sim.options.run_options import generate_options
from tests.sim.options.tenants import ADMIN, ALICE, BOB, BOB_GROUP
from tests.sim.run import run_seed
from tests.sim.workloads.encode import encode_batch

BROKER = "broker-1.sim#1"
READ_ALL = AclRow(codes.TOPIC, "t-", codes.PREFIXED, "User:bob", "*", codes.READ, codes.ALLOW)
DENY_ONE = AclRow(codes.TOPIC, "t-1", codes.LITERAL, "User:*", "127.0.0.0/8", codes.ALL, codes.DENY)
READ_ONE = Access("User:bob", "127.0.0.1", codes.READ, codes.TOPIC, "t-1")
CHANGES = [AclChange(4, b"a", READ_ALL), AclChange(6, b"b", DENY_ONE), AclChange(8, b"b", None)]
SECURED_SEED = 1


def evidence(**details: object) -> AclEvidence:
    known = AclEvidence(CHANGES, requested=dict.fromkeys((READ_ALL, DENY_ONE)))
    return replace(known, **details)  # type: ignore[arg-type]


def test_codes_of_the_checker_are_those_of_kafka() -> None:
    assert (codes.TOPIC, codes.GROUP, codes.CLUSTER, codes.TRANSACTIONAL_ID) == (
        ResourceType.TOPIC,
        ResourceType.GROUP,
        ResourceType.CLUSTER,
        ResourceType.TRANSACTIONAL_ID,
    )
    assert (codes.LITERAL, codes.PREFIXED) == (PatternType.LITERAL, PatternType.PREFIXED)
    assert (codes.DENY, codes.ALLOW) == (Permission.DENY, Permission.ALLOW)
    assert (codes.ALL, codes.READ, codes.WRITE, codes.DELETE, codes.ALTER, codes.DESCRIBE) == (
        AclOperation.ALL,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    )


@pytest.mark.parametrize(
    ("acls", "access", "expected"),
    [
        ([], READ_ONE, False),
        ([READ_ALL], READ_ONE, True),
        ([READ_ALL, DENY_ONE], READ_ONE, False),
        ([READ_ALL, DENY_ONE], READ_ONE._replace(host="hostile.sim"), True),
        ([READ_ALL], READ_ONE._replace(operation=codes.DESCRIBE), True),
        ([READ_ALL], READ_ONE._replace(operation=codes.WRITE), False),
        ([READ_ALL], READ_ONE._replace(principal="User:eve"), False),
        ([READ_ALL], READ_ONE._replace(name="u-1"), False),
        ([READ_ALL], READ_ONE._replace(resource=codes.GROUP), False),
        ([READ_ALL._replace(name="*", pattern=codes.LITERAL)], READ_ONE, True),
    ],
)
def test_decision_by_all_acls(acls: list[AclRow], access: Access, expected: bool) -> None:
    assert is_allowed(acls, access) is expected


def test_history_has_the_acls_of_each_offset() -> None:
    history = AclHistory(CHANGES)
    assert [len(history.at(offset)) for offset in (-1, 3, 4, 5, 6, 7, 8, 9)] == [0, 0, 1, 1, 2, 2, 1, 1]
    assert [len(state) for state in history.between(5, 7)] == [1, 2]


def test_acls_and_decisions_of_the_log_have_no_finding() -> None:
    applied = [Applied(BROKER, -1, ()), Applied(BROKER, 5, (READ_ALL,)), Applied(BROKER, 8, (READ_ALL,))]
    decided = [Decided(BROKER, READ_ONE, True, 4, 5), Decided(BROKER, READ_ONE, False, 6, 6)]
    either = [Decided(BROKER, READ_ONE, allowed, 5, 6) for allowed in (True, False)]
    assert list(acl_findings(evidence(applied=applied, decided=[*decided, *either]))) == []


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"applied": [Applied(BROKER, 5, ())]}, "has other ACLs: missing"),
        ({"applied": [Applied(BROKER, 8, (READ_ALL, DENY_ONE))]}, "has other ACLs: missing"),
        ({"decided": [Decided(BROKER, READ_ONE, True, 6, 7)]}, "allowed"),
        ({"decided": [Decided(BROKER, READ_ONE, False, 8, 9)]}, "denied"),
        ({"requested": {}}, "that the administrator did not add"),
    ],
)
def test_violation_of_acls_is_a_finding(details: dict[str, object], expected: str) -> None:
    found = next(acl_findings(evidence(**details)))
    assert found.startswith("I18 ")
    assert expected in found


@pytest.mark.parametrize(
    "intrusion",
    [
        Intrusion("Fetch v12", BROKER, (29,), (29, 29)),
        Intrusion("Fetch v12", BROKER, (29,), (29,), errors_of_missing=(29,)),
        Intrusion("CreateTopics v7", BROKER, (29,), (7,), errors_of_missing=(29,)),
        Intrusion("CreateTopics v7", BROKER, (29,), (29,), errors_of_missing=(7,)),
        Intrusion("ListGroups v5", BROKER, None),
    ],
)
def test_refused_request_of_a_hostile_tenant_has_no_finding(intrusion: Intrusion) -> None:
    assert list(tenant_findings(TenantEvidence([intrusion]))) == []


@pytest.mark.parametrize(
    ("intrusion", "expected"),
    [
        (Intrusion("Fetch v12", BROKER, (29,)), "has no error instead of (29,)"),
        (Intrusion("Fetch v12", BROKER, (29,), (29, 3)), "has the errors (29, 3)"),
        (Intrusion("ListGroups v5", BROKER, None, leaked=("b'bob-group'",)), "the response contains b'bob-group'"),
        (Intrusion("Fetch v12", BROKER, (29,), (29,), errors_of_missing=(3,)), "shows whether the name exists"),
        (Intrusion("login", BROKER, None, carried_out=True), "was carried out"),
    ],
)
def test_success_of_a_hostile_tenant_is_a_finding(intrusion: Intrusion, expected: str) -> None:
    (finding,) = tenant_findings(TenantEvidence([intrusion]))
    assert finding.startswith(f"I19 {BROKER}: {intrusion.what}")
    assert expected in finding


def test_offset_that_another_tenant_committed_is_a_finding() -> None:
    tenants = TenantEvidence(sent={1: None, 2: None}, fetched=[1, 2, 999_999, -1])
    assert len(list(tenant_findings(tenants))) == 2
    tenants.offsets_expire = True
    assert len(list(tenant_findings(tenants))) == 1


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (Setting(9, SCRAM, "bob"), 1),
        (Setting(9, QUOTA, ""), 1),
        (Setting(9, CONFIG, "ledger"), 1),
        (Setting(9, CONFIG, "1"), 1),
        (Setting(9, CONFIG, "__consumer_offsets"), 0),
        (Setting(8, CONFIG, "ledger"), 0),
        (Setting(9, REMOVE_TOPIC, "scratch"), 0),
        (Setting(9, REMOVE_TOPIC, "ledger"), 1),
    ],
)
def test_setting_of_another_tenant_that_changes_is_a_finding(setting: Setting, expected: int) -> None:
    tenants = TenantEvidence(settings=[setting], set_up_to=8, topics=("ledger",))
    assert len(list(tenant_findings(tenants))) == expected


def test_record_that_another_tenant_wrote_is_a_finding() -> None:
    known = Evidence(
        History(), {("bob-orders", 0): PartitionModel.read([encode_batch([(None, b"mallory")], timestamp=0)])}
    )
    assert list(check_isolation(known)) == []
    known.tenants = TenantEvidence()
    assert list(check_isolation(known)) == ["I19 ('bob-orders', 0) has a record of another tenant at 0"]


def test_client_id_names_the_user() -> None:
    assert user_of(client_id_of(BOB, "modern-0")) == BOB
    assert {user for user, _ in first_credentials()} == {ADMIN, ALICE}


def test_security_leaves_all_other_options() -> None:
    for seed in range(20):
        for brokers in (1, 3):
            plain = generate_options(seed, brokers=brokers, hostile=False, security=False)
            secured = generate_options(seed, brokers=brokers, hostile=False, security=True)
            assert plain.security is None
            assert replace(secured, security=None) == plain
            assert (secured.security is None) is plain.lossy
            assert generate_options(seed, brokers=brokers, hostile=True, security=True).security is None


@pytest.mark.parametrize(("unresolved", "findings"), [((), 1), ((1,), 0), ((2,), 1)])
def test_lower_offset_of_a_tenant_is_a_finding_unless_its_commit_had_no_response(
    unresolved: tuple[int, ...], findings: int
) -> None:
    place = (BOB_GROUP, "bob-orders", 0)
    changes = [Committed(place, 2, record=0, producer_id=-1), Committed(place, 1, record=1, producer_id=-1)]
    groups = GroupEvidence((), (), changes={place: changes})
    tenants = TenantEvidence(unresolved=dict.fromkeys(unresolved))
    found = list(check_offsets_monotonic(Evidence(History(), {}, groups=groups, tenants=tenants)))
    assert len(found) == findings


def test_run_with_acls_has_no_finding_and_reaches_its_events() -> None:
    options = generate_options(SECURED_SEED, brokers=3, hostile=False, security=True)
    result = run_seed(SECURED_SEED, options=options)
    assert result.findings == []
    assert result.security
    assert result.counters["intrusion refused"]
    assert result.counters["ACL changed"]
    assert result.counters["ACL probe denied"]
    assert result.counters["login by a token"]
    assert result.counters["token refused"]
