"""Audit log: events of denied operations and allowed changes, and the limits of their number."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from structlog.testing import capture_logs

from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.session import Session
from odradek.broker.security.audit import (
    EVENTS_MAX,
    EVENTS_PER_SUBJECT_MAX,
    NAMES_MAX,
    SUBJECTS_MAX,
    AuditLog,
    EventLimits,
)
from odradek.cluster.authorization.standard import StandardAuthorizer
from odradek.cluster.authorizer import AclOperation, Principal, ResourceType
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.acls import Acl, PatternType, Permission
from tests.support.broker_context import LISTENER

ALICE = Principal("User", "alice")
ALLOW_CREATE = Acl(
    ResourceType.TOPIC, "t", PatternType.PREFIXED, "User:alice", "*", AclOperation.CREATE, Permission.ALLOW
)


class Rig:
    def __init__(self) -> None:
        self.now_ms = 5_000
        self.authorizer = StandardAuthorizer()
        image = MetadataImage(offset=1, acls={UUID(int=1): ALLOW_CREATE})
        self.authorizer.on_metadata(MetadataDelta.from_nothing(image), image)
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.audit = AuditLog(clock, {19: "CreateTopics"})

    def context(self, principal: Principal = ALICE, host: str = "10.0.0.1") -> RequestContext:
        session = Session(1, LISTENER, host, 5, principal)
        context = RequestContext(19, 7, 1, "client", session, self.authorizer, 0, 100)
        context.audit = self.audit
        return context


def test_denied_operation_and_allowed_change_are_logged_with_their_rule() -> None:
    rig = Rig()
    with capture_logs() as logs:
        assert rig.context().split_allowed(AclOperation.CREATE, ResourceType.TOPIC, ["t1", "u\n"]) == (["t1"], ["u\n"])
        assert not rig.context().allowed_on_cluster(AclOperation.ALTER, about=("the ACL",))
    common = {"log_level": "info", "logger": "odradek.audit", "principal": "User:alice", "address": "10.0.0.1"}
    assert logs == [
        {
            **common,
            "event": "operation denied",
            "api": "CreateTopics",
            "operation": "CREATE",
            "resource": "TOPIC",
            "names": ["u\n"],
            "rule": "no ACL allows it",
        },
        {
            **common,
            "event": "change allowed",
            "api": "CreateTopics",
            "operation": "CREATE",
            "resource": "TOPIC",
            "names": ["t1"],
            "rule": "ACL ALLOW CREATE on TOPIC PREFIXED t to User:alice from *",
        },
        {
            **common,
            "event": "operation denied",
            "api": "CreateTopics",
            "operation": "ALTER",
            "resource": "CLUSTER",
            "names": ["kafka-cluster"],
            "about": ["the ACL"],
            "rule": "no ACL allows it",
        },
    ]


def test_filters_of_resources_that_the_request_does_not_name_are_not_logged() -> None:
    rig = Rig()
    with capture_logs() as logs:
        context = rig.context()
        assert context.permitted(AclOperation.DESCRIBE, ResourceType.TOPIC, ["a", "b"]) == []
        assert not context.permits(AclOperation.READ, ResourceType.TOPIC, "a")
        assert not context.permits_on_cluster(AclOperation.CREATE)
        assert context.permits_any(AclOperation.CREATE, ResourceType.TOPIC)
        assert context.split_allowed(AclOperation.READ, ResourceType.TOPIC, []) == ([], [])
    assert logs == []


def test_event_of_many_long_names_is_bounded() -> None:
    rig = Rig()
    with capture_logs() as logs:
        rig.context().split_allowed(AclOperation.READ, ResourceType.GROUP, [f"{n}" * 30_000 for n in range(1, 1_001)])
    [event] = logs
    assert event["resources"] == 1_000
    assert len(event["names"]) == NAMES_MAX
    assert len(repr(event)) < 2_000


def test_hostile_client_is_limited_alone_and_suppressed_events_are_counted() -> None:
    rig = Rig()
    with capture_logs() as logs:
        for _ in range(1_000):
            rig.context().allowed(AclOperation.READ, ResourceType.TOPIC, "secret")
        rig.context(host="10.0.0.2").allowed(AclOperation.READ, ResourceType.TOPIC, "secret")
        assert len(logs) == EVENTS_PER_SUBJECT_MAX + 1
        rig.now_ms += 1_000
        rig.context().allowed(AclOperation.READ, ResourceType.TOPIC, "secret")
    assert [event.get("suppressed") for event in logs[-2:]] == [None, 1_000 - EVENTS_PER_SUBJECT_MAX]


def test_events_of_many_addresses_are_limited_together_and_their_counts_are_bounded() -> None:
    limits = EventLimits()
    admitted = [limits.admit((ALICE, f"10.0.{n // 256}.{n % 256}"), 7) for n in range(5_000)]
    assert admitted.count(0) == EVENTS_MAX
    assert len(limits._windows) == SUBJECTS_MAX
    assert limits.admit((ALICE, "10.0.0.0"), 1_007) == 0
