"""Authorizer compared with Apache Kafka's StandardAuthorizer on random ACLs and questions, in one JVM process."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from odradek.cluster.authorization.standard import StandardAuthorizer
from odradek.cluster.authorizer import Principal
from odradek.cluster.metadata.image import MetadataImage
from odradek.cluster.metadata.snapshot import delta_between
from odradek.protocol.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from tests.support.jars import REFERENCE
from tests.support.kafka_tools import LOGGING

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_800)]

SOURCE = Path(__file__).with_name("KafkaAuthorizer.java")
QUESTIONS_PER_SET = 10
ACLS_MAX = 12

TYPES = [ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.TOPIC, *list(ResourceType)[1:]]
OPERATIONS = [AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, *list(AclOperation)[1:]]
PRINCIPALS = ["User:a", "User:a", "User:*", "User:b", "Group:a", "User:a:b"]
# Kafka's class fails for a client with the principal User:*.
CLIENTS = [Principal("User", name) for name in ("a", "a", "b", "a:b")] + [Principal("Group", "a")]
HOSTS = ["*", "*", "10.0.0.1", "10.0.0.0/8", "10.0.0.2/31", "10.0.0.0/33", "0.0.0.0/0", "0:0:0:0:0:0:0:1", "fd00::/64"]
CLIENT_HOSTS = ["10.0.0.1", "10.0.0.1", "10.0.0.3", "11.0.0.1", "0:0:0:0:0:0:0:1", "fd00:0:0:0:0:0:0:9"]
NAMES = ["*", "a", "ab", "abc", "abcd", "ac", "b", "ba", "hardcode", "hard", "h"]
"""Names of resources in ACLs and questions. None begins with `*`, or with a character below it, and continues.

Kafka's search ignores the ACLs of `*` for the former, and does not end for the latter. Topics have no such names.
"""
SUPER_USERS = ["", "", "", "User:b", "User:b;Group:a", " User:a ; "]


@dataclass(frozen=True)
class Question:
    """Question about one resource, or about any resource of the type if the name is None."""

    principal: Principal
    host: str
    operation: AclOperation
    resource: ResourceType
    name: str | None

    def line(self) -> str:
        name = "" if self.name is None else f" {self.name}"
        return f"{self.principal} {self.host} {self.operation.value} {self.resource.value}{name}"


@dataclass(frozen=True)
class Case:
    """ACLs of a snapshot, ACLs that are added to it, positions of the removed ones, and questions."""

    super_users: str
    allow_if_no_acl: bool
    snapshot: tuple[Acl, ...]
    added: tuple[Acl, ...]
    removed: tuple[int, ...]
    questions: tuple[Question, ...]

    def line(self) -> str:
        fields = (
            self.super_users,
            str(self.allow_if_no_acl).lower(),
            ";".join(map(_line, self.snapshot)),
            ";".join(map(_line, self.added)),
            ";".join(map(str, self.removed)),
            ";".join(question.line() for question in self.questions),
        )
        return "\t".join(fields)


def _line(acl: Acl) -> str:
    return " ".join(str(part.value if isinstance(part, int) else part) for part in acl)


def case_of(rng: random.Random) -> Case:
    acls = {
        Acl(
            rng.choice(TYPES),
            rng.choice(NAMES),
            rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            rng.choice(PRINCIPALS),
            rng.choice(HOSTS),
            rng.choice(OPERATIONS),
            rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        ): None
        for _ in range(rng.randrange(ACLS_MAX + 1))
    }
    all_of_them = tuple(acls)
    in_snapshot = rng.randrange(len(all_of_them) + 1)
    questions = tuple(
        Question(
            rng.choice(CLIENTS),
            rng.choice(CLIENT_HOSTS),
            rng.choice(OPERATIONS),
            rng.choice(TYPES),
            rng.choice([*NAMES, None]),
        )
        for _ in range(QUESTIONS_PER_SET)
    )
    removed = [number for number in range(len(all_of_them)) if rng.random() < 0.2]
    return Case(
        rng.choice(SUPER_USERS),
        rng.random() < 0.3,
        all_of_them[:in_snapshot],
        all_of_them[in_snapshot:],
        tuple(removed),
        questions,
    )


def decisions(case: Case) -> str:
    """Return Odradek's decisions in the form of KafkaAuthorizer.java."""
    super_users = [user.strip() for user in case.super_users.split(";") if user.strip()]
    authorizer = StandardAuthorizer(super_users, allow_if_no_acl=case.allow_if_no_acl)
    acls = {UUID(int=number): acl for number, acl in enumerate((*case.snapshot, *case.added))}
    snapshot = {acl_id: acl for acl_id, acl in acls.items() if acl_id.int < len(case.snapshot)}
    kept = {acl_id: acl for acl_id, acl in acls.items() if acl_id.int not in case.removed}
    base, decided = MetadataImage(), ""
    for step in (snapshot, acls, kept):
        image = MetadataImage(offset=base.offset + 1, acls=step)
        authorizer.on_metadata(delta_between(base, image), image)
        base = image
        decided = "".join("01"[decide(authorizer, question)] for question in case.questions)
    return decided


def decide(authorizer: StandardAuthorizer, question: Question) -> bool:
    subject = (question.principal, question.host, question.operation, question.resource)
    if question.name is None:
        return authorizer.decide_any(*subject).allowed
    return authorizer.decide(*subject, question.name).allowed


def run_kafkas_authorizer(cases: list[Case]) -> list[str]:
    java = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOGGING}"]
    finished = subprocess.run(
        [*java, "-cp", f"{REFERENCE}/*", str(SOURCE)],
        input="".join(f"{case.line()}\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_decisions_equal_those_of_kafka(count: int) -> None:
    rng = random.Random(f"authorizer-{count}")
    cases = [case_of(rng) for _ in range(count)]
    expected = run_kafkas_authorizer(cases)
    assert len(expected) == count
    assert 0.1 < sum(each.count("1") for each in expected) / (count * QUESTIONS_PER_SET) < 0.9
    for case, decided in zip(cases, expected, strict=True):
        assert decisions(case) == decided, case.line()
