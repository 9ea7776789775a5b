"""Changes of ACLs during a run, and requests whose responses show by which ACLs a broker decided."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages import fetch, list_offsets, offset_fetch, produce
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.sim.checkers.acls import (
    ALL,
    ALLOW,
    DENY,
    DESCRIBE,
    GROUP,
    HOSTS_OF_CLIENTS,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Access,
    AclRow,
    Decided,
)
from tests.sim.options.tenants import ADMIN, BOB, LENT_GROUP, LENT_ID, LENT_PREFIX, LENT_TOPICS, MALLORY
from tests.sim.watchers.acls import HOSTS
from tests.sim.workloads.client import TRANSACTION_KEY, Client
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch
from tests.support.hostile_attack import error_codes

if TYPE_CHECKING:
    from odradek.protocol.schema import Message
    from tests.sim.checkers.acls import AclEvidence
    from tests.sim.world import World

TOPIC_DENIED, GROUP_DENIED, ID_DENIED = 29, 30, 53
"""Error codes of denied requests."""
ACLS_OF_RUN_MAX: Final = 8
"""Maximum ACLs that the administrator has added and not removed."""
DENY_PROBABILITY: Final = 0.3
PROBE_SECONDS: Final = 0.1
BOGUS_PRODUCER_ID: Final = 1 << 40
"""A producer id that no coordinator assigned: a permitted batch with it is not appended."""


class AclAdministrator(Client):
    """Adds and removes ACLs of the lent resources until the run stops."""

    user = ADMIN

    def __init__(self, world: "World", name: str, evidence: "AclEvidence") -> None:
        super().__init__(world, name)
        self._evidence = evidence
        self._added: dict[AclRow, None] = {}

    async def run(self) -> None:
        security = self.world.options.security
        assert security is not None
        while not self.world.stopping:
            await asyncio.sleep(2 * self.rng.random() * security.change_seconds)
            try:
                await self._change()
            except OSError:
                await self.backoff()
        self.close()

    async def _change(self) -> None:
        full = len(self._added) >= ACLS_OF_RUN_MAX
        if self._added and (full or self.rng.random() < 0.5):
            acl = self.rng.choice(list(self._added))
            request: Message = DeleteAclsRequest([DeleteAclsFilter(*acl)])
            del self._added[acl]
        else:
            acl = self._sample()
            self._evidence.requested[acl] = None
            self._added[acl] = None
            request = CreateAclsRequest([AclCreation(*acl)])
        if not any(error_codes(await self.call(request, 3, self._random_node()))):
            self.world.count("ACL changed")

    def _sample(self) -> AclRow:
        rng = self.rng
        resource, names = rng.choice(
            ((TOPIC, LENT_TOPICS), (TOPIC, LENT_TOPICS), (GROUP, (LENT_GROUP,)), (TRANSACTIONAL_ID, (LENT_ID,)))
        )
        pattern = rng.choice((LITERAL, PREFIXED))
        name = rng.choice(names) if pattern == LITERAL else rng.choice((LENT_PREFIX, *names))
        operations = {TOPIC: (READ, WRITE, DESCRIBE, ALL), GROUP: (READ, DESCRIBE), TRANSACTIONAL_ID: (WRITE,)}
        return AclRow(
            resource,
            name,
            pattern,
            rng.choice((f"User:{BOB}", f"User:{MALLORY}", "User:*")),
            rng.choice(HOSTS_OF_CLIENTS),
            rng.choice(operations[resource]),
            DENY if rng.random() < DENY_PROBABILITY else ALLOW,
        )


@dataclass(frozen=True, slots=True)
class Probe:
    """One request, and the decisions that an error in its response shows: the first one that matches is a denial."""

    request: "Message"
    version: int
    checked: tuple[tuple[int, int, int, str], ...]
    """Error code of the denial, operation, resource type and name, in the order in which the broker checks them."""


class Prober(Client):
    """Sends requests about the lent resources to random brokers until the run stops."""

    @staticmethod
    def of(world: "World", user: str, evidence: "AclEvidence") -> "Prober":
        """Return a prober that logs in as `user`."""
        kind = {BOB: BobProber, MALLORY: MalloryProber}[user]
        return kind(world, f"prober-{user}", evidence)

    def __init__(self, world: "World", name: str, evidence: "AclEvidence") -> None:
        super().__init__(world, name)
        self._evidence = evidence

    async def run(self) -> None:
        while not self.world.stopping:
            await asyncio.sleep(2 * self.rng.random() * PROBE_SECONDS)
            try:
                await self._probe(self._sample())
            except OSError:
                await self.backoff()
        self.close()

    async def _probe(self, probe: Probe) -> None:
        number = self._random_node()
        await self.connection(number)
        machine = self.world.cluster.machine(number)
        name, node = machine.name, machine.node
        if node is None:
            return
        first = node.metadata.image.offset
        codes = error_codes(await self.call(probe.request, probe.version, number))
        if machine.node is not node:
            return
        last = node.metadata.image.offset
        for code, operation, resource, resource_name in probe.checked:
            access = Access(f"User:{self.user}", HOSTS[self.user], operation, resource, resource_name)
            self._evidence.decided.append(Decided(name, access, code not in codes, first, last))
            self.world.count(f"ACL probe {'denied' if code in codes else 'allowed'}")
            if code in codes:
                break

    def _sample(self) -> Probe:
        topic = self.rng.choice(LENT_TOPICS)
        return self.rng.choice(
            (_metadata(topic), _fetch(topic), _list_offsets(topic), _produce(topic), _offset_fetch(), _find(), _beat())
        )


class BobProber(Prober):
    """Prober of the honest tenant."""

    user = BOB


class MalloryProber(Prober):
    """Prober of the hostile tenant."""

    user = MALLORY


def _metadata(topic: str) -> Probe:
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return Probe(request, 12, ((TOPIC_DENIED, DESCRIBE, TOPIC, topic),))


def _fetch(topic: str) -> Probe:
    rows = [fetch.FetchTopic(topic, partitions=[fetch.FetchPartition(partition_max_bytes=1000)])]
    request = fetch.FetchRequest(max_bytes=1000, topics=rows)
    return Probe(request, 12, ((TOPIC_DENIED, READ, TOPIC, topic),))


def _list_offsets(topic: str) -> Probe:
    rows = [list_offsets.ListOffsetsTopic(topic, [list_offsets.ListOffsetsPartition(timestamp=-1)])]
    return Probe(list_offsets.ListOffsetsRequest(-1, 0, rows), 5, ((TOPIC_DENIED, DESCRIBE, TOPIC, topic),))


def _produce(topic: str) -> Probe:
    batch = encode_batch(
        [(None, b"probe")],
        timestamp=0,
        producer_id=BOGUS_PRODUCER_ID,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    rows = [produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, batch)])]
    request = produce.ProduceRequest(LENT_ID, -1, 1000, rows)
    checked = ((ID_DENIED, WRITE, TRANSACTIONAL_ID, LENT_ID), (TOPIC_DENIED, WRITE, TOPIC, topic))
    return Probe(request, 11, checked)


def _offset_fetch() -> Probe:
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(LENT_GROUP, topics=[])])
    return Probe(request, 8, ((GROUP_DENIED, DESCRIBE, GROUP, LENT_GROUP),))


def _find() -> Probe:
    request = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[LENT_ID])
    return Probe(request, 4, ((ID_DENIED, DESCRIBE, TRANSACTIONAL_ID, LENT_ID),))


def _beat() -> Probe:
    return Probe(HeartbeatRequest(LENT_GROUP, 1, "absent"), 4, ((GROUP_DENIED, READ, GROUP, LENT_GROUP),))
