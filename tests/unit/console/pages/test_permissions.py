"""Pages for a user that may not describe all resources of the cluster."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from odradek.client import (
    Acl,
    AclOperation,
    Cluster,
    PatternType,
    Permission,
    PlannedOffset,
    Producer,
    ProducerRecord,
    ResourceType,
    commit_offsets,
    create_acls,
    create_topic,
    list_producers,
)
from odradek.client.security.credentials import PLAIN
from tests.support.console_client import browser
from tests.support.secured_console import ALICE, BOB, secured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.console_client import Browser

AUTHORIZED = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:bob",
)
CLUSTER = ResourceType.CLUSTER, "kafka-cluster"


@asynccontextmanager
async def restricted(
    path: Path, *allowed: tuple[AclOperation, ResourceType, str]
) -> AsyncIterator[tuple[Browser, Cluster]]:
    """Run a broker and a console with actions. Yield a browser of ALICE with these ACLs, and a client of BOB.

    The topic payments has an open transaction of the transactional id hidden. The id own has committed one.
    """
    async with (
        secured(path, *AUTHORIZED, allow_actions=True) as settings,
        browser(settings) as page,
        Cluster(settings.bootstrap, settings.client_settings(BOB)) as bob,
    ):
        await create_topic(bob, "payments", partitions=1)
        everyone = "*"
        await create_acls(
            bob,
            [
                Acl(resource, name, PatternType.LITERAL, "User:alice", everyone, operation, Permission.ALLOW)
                for operation, resource, name in ((AclOperation.READ, ResourceType.TOPIC, "payments"), *allowed)
            ],
        )
        own, hidden = (Producer(bob, transactional_id=name) for name in ("own", "hidden"))
        for producer in (own, hidden):
            await producer.begin()
            await producer.send("payments", [ProducerRecord(None, b"1")])
        await own.commit()
        await commit_offsets(bob, "billing", [PlannedOffset("payments", 0, None, 1)])
        token = await page.token("/login")
        fields = {"csrf": token, "user": ALICE.user, "password": ALICE.password, "mechanism": PLAIN}
        assert (await page.post("/login", fields)).status == 303
        yield page, bob


async def test_group_and_transactional_id_are_shown_without_a_permission_on_the_internal_topics(tmp_path: Path) -> None:
    async with restricted(
        tmp_path,
        (AclOperation.DESCRIBE, ResourceType.GROUP, "billing"),
        (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "own"),
    ) as (page, _):
        group = (await page.get("/groups/id?id=billing")).text
        other_group = (await page.get("/groups/id?id=other")).text
        own = (await page.get("/transactions/id?id=own")).text
        hidden = (await page.get("/transactions/id?id=hidden")).text
        log = (await page.get("/transactions/log")).text
    assert "<dt>Lag to high watermark</dt><dd>" in group
    assert "does not exist" not in group
    assert "group other does not exist" in other_group
    assert "CompleteCommit" in own
    assert "transactional id hidden does not exist" in hidden
    for text in (own, log):
        assert "topic __transaction_state: TOPIC_AUTHORIZATION_FAILED" in text
    assert "has had no transaction" not in log


async def test_transaction_whose_id_the_user_may_not_describe_is_not_hanging(tmp_path: Path) -> None:
    async with restricted(tmp_path, (AclOperation.CLUSTER_ACTION, *CLUSTER)) as (page, bob):
        shown = (await page.get("/transactions")).text
        token = await page.token("/transactions")
        address = "/transactions/abort?topic=payments&partition=0&producer_id=1"
        producer_id = next(iter(await open_producers(bob)))
        refused = await page.post(address.replace("=1", f"={producer_id}"), {"csrf": token})
        assert await open_producers(bob) == {producer_id}
    assert "2 held back" in shown
    assert '<span class="state warn">unknown</span>' in shown
    assert '<span class="state bad">hanging</span>' not in shown
    assert "/transactions/abort" not in shown
    assert "may not describe all transactional ids" in shown
    assert refused.status == 502
    assert "may not describe all transactional ids" in refused.text


async def open_producers(cluster: Cluster) -> set[int]:
    """Return the producer ids with an open transaction."""
    return {row.producer_id for row in (await list_producers(cluster, "payments")).rows if row.open_transaction}
