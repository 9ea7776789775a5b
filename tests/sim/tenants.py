"""Tenants of a run with SASL and ACLs: their users, topics and ACLs, and their clients beside those of every run."""

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.simulation.environment.links import HOSTILE
from tests.sim.checkers.acls import acl_findings
from tests.sim.checkers.isolation import tenant_findings
from tests.sim.checkers.tokens import TokenEvidence
from tests.sim.cluster.users import ADDED, credential_request
from tests.sim.faults.fault import DAYS
from tests.sim.history import READ_COMMITTED
from tests.sim.options.tenants import ACLS, BOB, BOB_ID, LENT_TOPICS, MALLORY, MALLORY_TOPIC
from tests.sim.workloads.acl_changes import AclAdministrator, Prober
from tests.sim.workloads.intruder import Intruder
from tests.sim.workloads.readers import Reader
from tests.sim.workloads.tenant_offsets import OffsetOwner
from tests.sim.workloads.tokens import TokenUser
from tests.sim.workloads.transactions import Behavior, TransactionalProducer
from tests.sim.world import TABLE, TENANT_TOPICS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.protocol.schema import Message
    from tests.sim.checkers.acls import AclEvidence, AclRow
    from tests.sim.checkers.isolation import TenantEvidence
    from tests.sim.evidence.inspector import Inspector
    from tests.sim.workloads.producers import Dialect
    from tests.sim.world import World

SETUP_ATTEMPTS_MAX: Final = 200
APPLIED_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.05
FINDINGS_MAX: Final = 5


class BobProducer(TransactionalProducer):
    """Transactional producer of the second honest tenant."""

    user = BOB


class BobReader(Reader):
    """Reader of the second honest tenant."""

    user = BOB


class Tenants:
    """All tenants of a run; without any client in a run without SASL and ACLs."""

    def __init__(self, world: "World", evidence: "TenantEvidence") -> None:
        self._world = world
        self._evidence = evidence
        self._tokens = TokenEvidence()

    def producers(self, dialect: "Dialect") -> list[TransactionalProducer]:
        """Return the producers of the second honest tenant."""
        if self._world.options.security is None:
            return []
        return [BobProducer(self._world, "bob-producer", dialect, BOB_ID, Behavior())]

    async def set_up(self, inspector: "Inspector") -> None:
        """Create users, topics and ACLs. Return when all brokers have applied them."""
        watch = self._world.cluster.acls
        if watch is None:
            return
        for topic in (*TENANT_TOPICS, *LENT_TOPICS, MALLORY_TOPIC):
            await inspector.create_topic(1, name=topic)
        for user in ADDED:
            await _succeed(inspector, credential_request(user), 0)
        watch.evidence.requested |= dict.fromkeys(ACLS)
        await _succeed(inspector, creation_request(ACLS), 3)
        async with asyncio.timeout(APPLIED_SECONDS_MAX):
            while not self._is_applied():
                await asyncio.sleep(POLL_SECONDS)
        nodes = [machine.node for machine in self._world.cluster.machines if machine.node is not None]
        self._evidence.set_up_to = max(node.metadata.image.offset for node in nodes)

    def _is_applied(self) -> bool:
        nodes = [machine.node for machine in self._world.cluster.machines]
        return all(node is not None and len(node.metadata.image.acls) >= len(ACLS) for node in nodes)

    def start(self) -> list[asyncio.Task[None]]:
        """Start the clients that run until the end of the workload."""
        world, watch = self._world, self._world.cluster.acls
        if watch is None:
            return []
        security = world.options.security
        honest: list[BobReader | OffsetOwner | AclAdministrator | Prober | TokenUser] = [
            BobReader(world, "bob-committed", READ_COMMITTED),
            OffsetOwner(world, "bob-offsets", self._evidence),
            AclAdministrator(world, "acl-administrator", watch.evidence),
            Prober.of(world, BOB, watch.evidence),
        ]
        if security is not None and security.tokens:
            honest.append(TokenUser(world, "token-user", self._tokens))
        hostile = (Prober.of(world, MALLORY, watch.evidence), Intruder(world, "intruder", self._evidence))
        return [
            *(world.loop.spawn(f"c:{client.name}", client.run(), client.name) for client in honest),
            *(world.loop.spawn(HOSTILE, client.run(), client.name) for client in hostile),
        ]

    def evidence(self) -> "tuple[AclEvidence | None, TenantEvidence | None]":
        """Return the input of the checkers of ACLs and of isolation; None in a run without them."""
        watch = self._world.cluster.acls
        if watch is None:
            return None, None
        watch.evidence.changes = self._world.monitor.metadata.acl_changes
        self._evidence.settings = self._world.monitor.metadata.settings
        self._evidence.topics = (TOPIC, TABLE, *TENANT_TOPICS, *LENT_TOPICS)
        self._evidence.offsets_expire = any(fault.kind == DAYS for fault in self._world.options.faults)
        return watch.evidence, self._evidence

    def token_evidence(self) -> "TokenEvidence | None":
        """Return the input of the checker of delegation tokens; None in a run without them."""
        security = self._world.options.security
        if security is None or not security.tokens:
            return None
        self._tokens.changes = self._world.monitor.metadata.token_changes
        return self._tokens

    def findings(self) -> list[str]:
        """Return the findings of a run that ends early."""
        acls, tenants = self.evidence()
        if acls is None or tenants is None:
            return []
        return [*islice(acl_findings(acls), FINDINGS_MAX), *islice(tenant_findings(tenants), FINDINGS_MAX)]


def creation_request(acls: "Sequence[AclRow]") -> CreateAclsRequest:
    """Return the request that adds ACLs."""
    return CreateAclsRequest(
        [
            AclCreation(acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)
            for acl in acls
        ]
    )


async def _succeed(inspector: "Inspector", request: "Message", version: int) -> None:
    """Send a request for the controller until it succeeds. Raise TimeoutError."""
    for _ in range(SETUP_ATTEMPTS_MAX):
        response = await inspector.send_with_retries(request, version)
        if not any(result.error_code for result in response.results):  # type: ignore[attr-defined]
            return
        await asyncio.sleep(POLL_SECONDS)
    raise TimeoutError(f"{request.NAME} is not carried out")
