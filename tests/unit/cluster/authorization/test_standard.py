"""StandardAuthorizer: decisions, their deciding rules, remembered decisions, and examined entries."""

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any
from uuid import UUID

import pytest

from odradek.cluster.authorization.index import AclIndex
from odradek.cluster.authorization.standard import DECISIONS_PER_GENERATION_MAX, StandardAuthorizer
from odradek.cluster.authorizer import ANONYMOUS, CLUSTER_NODE, Principal, Rule
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.cluster.metadata.records import encode_record
from odradek.cluster.metadata.replay.acls import acl_record
from odradek.cluster.metadata.snapshot import delta_between
from odradek.cluster.raft.batches import LogBatch
from odradek.cluster.raft.messages import EpochEnd
from odradek.protocol.acls import Acl, AclOperation, PatternType, Permission, ResourceType

ALICE = Principal("User", "alice")
HOST = "10.0.0.1"
Op, R = AclOperation, ResourceType


def acl(
    operation: AclOperation,
    name: str = "t",
    *,
    deny: bool = False,
    prefixed: bool = False,
    principal: str = "User:alice",
    host: str = "*",
    resource: ResourceType = R.TOPIC,
) -> Acl:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Acl(resource, name, pattern, principal, host, operation, Permission.DENY if deny else Permission.ALLOW)


def image_of(acls: Mapping[UUID, Acl]) -> MetadataImage:
    return MetadataImage(offset=1, acls=acls)


def authorizer(*acls: Acl, super_users: tuple[str, ...] = (), allow_if_no_acl: bool = False) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users, allow_if_no_acl=allow_if_no_acl)
    image = image_of({UUID(int=number): each for number, each in enumerate(acls)})
    made.on_metadata(MetadataDelta.from_nothing(image), image)
    return made


def allows(made: StandardAuthorizer, operation: AclOperation, name: str = "t", principal: Principal = ALICE) -> bool:
    decided = made.decide(principal, HOST, operation, R.TOPIC, name).allowed
    assert made.authorize(principal, HOST, operation, R.TOPIC, [name]) == [decided]
    return decided


def test_deny_precedes_allow_and_names_the_deciding_acl() -> None:
    denied = acl(Op.READ, "t", deny=True, prefixed=True)
    made = authorizer(acl(Op.READ), acl(Op.ALL, "*"), denied)
    decision = made.decide(ALICE, HOST, Op.READ, R.TOPIC, "t")
    assert (decision.allowed, decision.rule, decision.acl) == (False, Rule.ACL, denied)
    assert str(decision) == "ACL DENY READ on TOPIC PREFIXED t to User:alice from *"
    assert allows(made, Op.WRITE)


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.DESCRIBE, Op.ALL])
def test_allow_of_an_operation_on_the_data_implies_describe(operation: AclOperation) -> None:
    assert allows(authorizer(acl(operation)), Op.DESCRIBE)


@pytest.mark.parametrize("operation", [Op.READ, Op.CREATE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS])
def test_deny_implies_no_other_operation(operation: AclOperation) -> None:
    made = authorizer(acl(operation, deny=True), acl(Op.DESCRIBE))
    assert allows(made, Op.DESCRIBE)


def test_alter_configs_implies_describe_configs_alone() -> None:
    made = authorizer(acl(Op.ALTER_CONFIGS))
    assert allows(made, Op.DESCRIBE_CONFIGS)
    assert not allows(made, Op.DESCRIBE)


def test_wildcards_of_principal_and_name_match() -> None:
    made = authorizer(acl(Op.READ, "*", principal="User:*"))
    assert allows(made, Op.READ, "any", Principal("User", "bob"))
    assert not allows(authorizer(acl(Op.READ, "*", prefixed=True)), Op.READ, "any")


def test_acl_of_another_principal_host_or_resource_type_does_not_match() -> None:
    made = authorizer(
        acl(Op.READ, principal="User:bob"), acl(Op.READ, host="10.0.0.2"), acl(Op.READ, resource=ResourceType.GROUP)
    )
    assert not allows(made, Op.READ)


def test_resource_without_acl_is_allowed_only_if_configured() -> None:
    assert not allows(authorizer(), Op.READ)
    made = authorizer(acl(Op.READ, "u", principal="User:bob"), allow_if_no_acl=True)
    assert made.decide(ALICE, HOST, Op.READ, R.TOPIC, "t").rule is Rule.NO_ACL
    assert made.decide(ALICE, HOST, Op.READ, R.TOPIC, "u").rule is Rule.DEFAULT, "an ACL for another principal counts"


def test_super_users_and_nodes_are_allowed_despite_a_deny() -> None:
    made = authorizer(acl(Op.ALL, "*", deny=True, principal="User:*"), super_users=("User:alice",))
    assert made.decide(ALICE, HOST, Op.READ, R.TOPIC, "t").rule is Rule.SUPER_USER
    assert made.decide(CLUSTER_NODE, HOST, Op.READ, R.TOPIC, "t").rule is Rule.NODE
    assert not allows(made, Op.READ, principal=Principal("User", CLUSTER_NODE.name))
    assert not allows(made, Op.READ, principal=ANONYMOUS)


def test_only_super_users_and_nodes_are_allowed_before_the_first_image() -> None:
    made = StandardAuthorizer(["User:alice"], allow_if_no_acl=True)
    assert made.decide(ANONYMOUS, HOST, Op.READ, R.TOPIC, "t").rule is Rule.NOT_LOADED
    assert made.decide_any(ANONYMOUS, HOST, Op.WRITE, R.TOPIC).rule is Rule.NOT_LOADED
    assert allows(made, Op.READ)
    empty = MetadataImage()
    made.on_metadata(MetadataDelta(empty), empty)
    assert allows(made, Op.READ, principal=ANONYMOUS), "the decision of the time before is forgotten"


def test_changed_acls_replace_remembered_decisions() -> None:
    made = StandardAuthorizer()
    images = [
        image_of(acls)
        for acls in (
            {},
            {UUID(int=1): acl(Op.READ)},
            {UUID(int=1): acl(Op.READ), UUID(int=2): acl(Op.ALL, deny=True)},
            {},
        )
    ]
    decided = []
    for base, image in zip([MetadataImage(), *images], images, strict=False):
        made.on_metadata(delta_between(base, image), image)
        decided.append(allows(made, Op.READ))
    assert decided == [False, True, False, False]


def test_equal_acls_with_different_ids_count_until_the_last_one_is_removed() -> None:
    made = StandardAuthorizer()
    twice, once = (image_of({UUID(int=n): acl(Op.READ, host="10.0.0.0/8") for n in range(count)}) for count in (2, 1))
    none = image_of({})
    for base, image, allowed in ((none, twice, True), (twice, once, True), (once, none, False)):
        made.on_metadata(delta_between(base, image), image)
        assert allows(made, Op.READ) is allowed


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ((), False),
        ((acl(Op.WRITE),), True),
        ((acl(Op.WRITE), acl(Op.WRITE, deny=True)), False),
        ((acl(Op.WRITE), acl(Op.ALL, "*", deny=True)), False),
        ((acl(Op.WRITE, "*"), acl(Op.WRITE, deny=True, prefixed=True)), True),
        ((acl(Op.WRITE, "topic"), acl(Op.WRITE, "to", deny=True, prefixed=True)), False),
        ((acl(Op.WRITE, "topic", prefixed=True), acl(Op.WRITE, "topic", deny=True)), True),
        ((acl(Op.WRITE, "topic", prefixed=True), acl(Op.WRITE, "t", deny=True, prefixed=True)), False),
        ((acl(Op.READ),), False),
    ],
)
def test_any_resource_is_allowed_unless_each_allow_is_dominated(acls: tuple[Acl, ...], allowed: bool) -> None:
    decision = authorizer(*acls).decide_any(ALICE, HOST, Op.WRITE, R.TOPIC)
    assert decision.allowed is allowed


def executed_lines(made: StandardAuthorizer, name: str) -> int:
    """Return the number of lines that one decision executes."""
    return lines_of(lambda: made.decide(ALICE, HOST, Op.READ, R.TOPIC, name))


def lines_of(call: Callable[[], object]) -> int:
    """Return the number of lines that one call executes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


def test_work_of_a_decision_does_not_grow_with_the_acls_of_other_principals_and_names() -> None:
    own = acl(Op.READ, "team-a-", prefixed=True)

    def lines(count: int) -> int:
        others = [
            each
            for number in range(count)
            for each in (
                acl(Op.READ, "team-a-", prefixed=True, principal=f"User:{number}"),
                acl(Op.READ, f"team-{number:05}-", prefixed=True, principal="User:*"),
                acl(Op.READ, f"topic-{number}"),
            )
        ]
        made = authorizer(own, *others)
        assert made.decide(ALICE, "10.0.0.9", Op.READ, R.TOPIC, "team-a-1").allowed
        return executed_lines(made, "team-a-1")

    assert lines(1_000) == lines(10)


def test_remembered_decisions_are_bounded_and_need_no_look_up() -> None:
    made = authorizer(acl(Op.READ, "t"))
    first = executed_lines(made, "t")
    assert executed_lines(made, "t") * 5 < first
    for number in range(3 * DECISIONS_PER_GENERATION_MAX):
        made.decide(ALICE, HOST, Op.READ, R.TOPIC, f"topic-{number}")
    assert len(made._recent) + len(made._former) <= 2 * DECISIONS_PER_GENERATION_MAX
    made.decide(ALICE, HOST, Op.READ, R.TOPIC, "x" * 1_000)
    assert not any(len(name or "") == 1_000 for _, _, name, _, _ in made._recent)


def loaded(cache: MetadataCache, acls: Mapping[UUID, Acl], offset: int) -> None:
    """Load a snapshot with these ACLs into the cache."""
    load = cache.on_snapshot(EpochEnd(1, offset + 1))
    records = tuple((None, encode_record(acl_record(acl_id, each))) for acl_id, each in acls.items())
    for at in range(0, len(records), 10):
        load.take([LogBatch(at, at + 9, 1, records[at : at + 10])])
    load.done()


def test_acls_of_a_snapshot_are_indexed_before_its_image_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    made, cache = StandardAuthorizer(), MetadataCache()
    cache.prepare_snapshots(made.prepare)
    added: list[Acl] = []
    original = AclIndex.add

    def add(index: AclIndex, each: Acl) -> None:
        added.append(each)
        original(index, each)

    monkeypatch.setattr(AclIndex, "add", add)
    cache.subscribe(lambda *_: added.clear())
    cache.subscribe(made.on_metadata)
    first = {UUID(int=number): acl(Op.READ, f"topic-{number}") for number in range(100)}
    loaded(cache, first, 100)
    assert not added
    assert allows(made, Op.READ, "topic-99")
    second = {UUID(int=number): acl(Op.READ, f"topic-{number}") for number in range(50, 101)}
    unfinished = cache.on_snapshot(EpochEnd(1, 150))
    unfinished.take([LogBatch(0, 0, 1, ((None, encode_record(acl_record(UUID(int=7), acl(Op.WRITE)))),))])
    loaded(cache, second, 200)
    assert not added
    decided = [allows(made, Op.READ, f"topic-{number}") for number in (49, 50, 100)]
    assert (decided, allows(made, Op.WRITE)) == ([False, True, True], False)
    record = encode_record(acl_record(UUID(int=8), acl(Op.WRITE)))
    cache.on_committed([LogBatch(201, 201, 1, ((None, record),))])
    assert allows(made, Op.WRITE)


@pytest.mark.parametrize(("offset", "ids"), [(150, (8,)), (100, (8, 9))])
def test_acls_of_a_snapshot_that_was_not_completed_are_not_used(offset: int, ids: tuple[int, ...]) -> None:
    """The log reaches `offset` after the snapshot at offset 100 was given up."""
    made, cache = StandardAuthorizer(), MetadataCache()
    cache.prepare_snapshots(made.prepare)
    cache.subscribe(made.on_metadata)
    given_up = (None, encode_record(acl_record(UUID(int=7), acl(Op.WRITE))))
    cache.on_snapshot(EpochEnd(1, 101)).take([LogBatch(0, 0, 1, (given_up,))])
    in_log = tuple((None, encode_record(acl_record(UUID(int=number), acl(Op.READ, f"{number}")))) for number in ids)
    cache.on_committed([LogBatch(offset - len(ids) + 1, offset, 1, in_log)])
    assert cache.image.offset == offset
    assert (allows(made, Op.READ, "8"), allows(made, Op.WRITE)) == (True, False)


def test_nested_prefixes_need_no_pass_over_them() -> None:
    lines = {
        count: executed_lines(authorizer(*(acl(Op.READ, "a" * n, prefixed=True) for n in range(1, count))), "a" * 249)
        for count in (10, 250)
    }
    assert lines[250] == lines[10]


def test_denied_prefixes_are_not_read_to_decide_on_any_resource() -> None:
    def lines(count: int) -> int:
        made = authorizer(acl(Op.WRITE), *(acl(Op.WRITE, f"d{n:04}", deny=True, prefixed=True) for n in range(count)))
        made.decide(ALICE, HOST, Op.WRITE, R.TOPIC, "u")  # parses the address of the client
        return lines_of(lambda: made.decide_any(ALICE, HOST, Op.WRITE, R.TOPIC))

    assert lines(1_000) == lines(10)
