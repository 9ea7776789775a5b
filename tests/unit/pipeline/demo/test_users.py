"""Users of a secured demo: least privilege."""

from __future__ import annotations

from odradek.client import AclOperation, ResourceType
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.demo.users import DemoUsers, Names, rules

NAMES = Names("flights-1", "progress-1", "delays-1", "copies-1", "id-1", "spark.copies-1")
ADMIN = Access(
    "127.0.0.1:1",
    {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="root" password="root-secret";',
    },
)


def test_no_part_may_change_what_another_part_writes() -> None:
    found = rules(NAMES)
    writers: dict[str, set[str]] = {}
    for user, allowed in found.items():
        for kind, name, operation in allowed:
            if kind is ResourceType.TOPIC and operation is AclOperation.WRITE:
                writers.setdefault(name, set()).add(user)
    assert writers == {
        "flights-1": {"producer"},
        "progress-1": {"producer"},
        "delays-1": {"spark"},
        "copies-1": {"spark"},
    }
    operations = {operation for allowed in found.values() for _, _, operation in allowed}
    assert operations.isdisjoint({AclOperation.ALL, AclOperation.CREATE, AclOperation.ALTER, AclOperation.DELETE})
    assert {operation for _, _, operation in found["auditor"]}.isdisjoint({AclOperation.WRITE})


def test_each_user_has_a_password_of_its_own_and_the_name_of_the_run() -> None:
    accesses = DemoUsers(ADMIN, "run-7", NAMES).accesses
    assert accesses.users == ["root", "producer-run-7", "spark-run-7", "auditor-run-7"]
    passwords = {access.confluent()["sasl.password"] for access in (accesses.producer, accesses.spark)}
    assert len(passwords | {accesses.auditor.confluent()["sasl.password"], "root-secret"}) == 4
    assert accesses.describe().startswith("SASL_PLAINTEXT with SCRAM-SHA-512, users root, ")
    assert not any(password in repr(accesses) for password in passwords)
