"""The hostile tenant: a client that has logged in, and tries to read and change what belongs to others."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.protocol.codec import encode
from tests.sim.checkers.isolation import Intrusion
from tests.sim.cluster.node_config import CLUSTER_ID
from tests.sim.cluster.users import Credentials, LoginFailed, client_id_of, log_in
from tests.sim.history import INIT, JOIN, OK
from tests.sim.intrusions.attempt import Attempt, Target
from tests.sim.intrusions.cluster import ON_CLUSTER
from tests.sim.intrusions.groups import ON_GROUPS
from tests.sim.intrusions.topics import ON_TOPICS
from tests.sim.options.tenants import ADMIN, ALICE, BOB, BOB_GROUP, BOB_ID, EVE, MALLORY
from tests.sim.workloads.client import CALL_SECONDS, CONNECT_SECONDS, Client
from tests.sim.world import (
    CONSUMER_OFFSETS,
    INTERNAL_PORT,
    PORT,
    TENANT_TOPICS,
    TOPIC,
    TRANSACTION_STATE,
    host_name,
)
from tests.support.hostile_attack import error_codes
from tests.support.hostile_forged import Victim, forge
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.protocol.schema import Message
    from tests.sim.checkers.isolation import TenantEvidence
    from tests.sim.world import World

OTHERS: Final = (TOPIC, *TENANT_TOPICS)
ATTEMPTS: Final = {**ON_TOPICS, **ON_GROUPS, **ON_CLUSTER}
INTERNAL_PROBABILITY: Final = 0.2
"""Part of the failing logins that use the listener of the brokers."""
WAITED_SECONDS_MAX: Final = 3.0
"""Maximum lifetime of a session whose end the client awaits, in seconds."""
UNUSED_PRODUCER_ID: Final = 1 << 40
"""A producer id that no coordinator assigns in a run."""
KINDS: Final = (70, 12, 6, 6, 6, 1)
"""Weights of the kinds of attempts, in the order of `Intruder.run`."""
EXPIRED: Final = 1.2
"""Time of a request after the end of its session, as a multiple of the lifetime. Clocks differ by 2 % at most."""


@dataclass(frozen=True, slots=True)
class _Secrets:
    """Names and ids of other tenants that no response may contain unless its request did."""

    texts: tuple[bytes, ...]
    ids: tuple[bytes, ...]

    def in_response(self, sent: bytes, received: bytes) -> tuple[str, ...]:
        """Return what the response contains and the request did not."""
        return tuple(repr(secret) for secret in (*self.texts, *self.ids) if secret in received and secret not in sent)


class Intruder(Client):
    """Sends requests of all kinds until the run stops, and records each response."""

    user = MALLORY

    def __init__(self, world: "World", name: str, evidence: "TenantEvidence") -> None:
        super().__init__(world, name)
        self._evidence = evidence
        options = world.options
        self._victim = Victim(tuple(range(1, options.brokers + 1)), CLUSTER_ID)
        self._topic_ids = self._known_topic_ids()
        groups = [] if options.groups is None else [plan.name for plan in options.groups.plans]
        self._groups = [*groups, BOB_GROUP]
        self._ids = ["modern-0", BOB_ID]
        names = (
            *OTHERS,
            *self._groups,
            *self._ids,
            TRANSACTION_STATE,
            CONSUMER_OFFSETS,
            f"User:{BOB}",
            f"User:{ALICE}",
        )
        self._secrets = _Secrets(
            tuple(each.encode() for each in names), tuple(topic_id.bytes for topic_id in self._topic_ids.values())
        )

    def _known_topic_ids(self) -> dict[str, UUID]:
        """Return the ids of the topics of others, which the hostile tenant is supposed to have learned."""
        node = self.world.cluster.machine(1).node
        assert node is not None
        topics = node.metadata.image.topics
        return {name: topics[name].topic_id for name in OTHERS}

    async def run(self) -> None:
        security = self.world.options.security
        assert security is not None
        self._victim.topics |= {name: (topic_id, 1) for name, topic_id in self._topic_ids.items()}
        kinds: tuple[Callable[[int], Awaitable[None]], ...] = (
            self._request,
            self._forge,
            self._guess_password,
            self._skip_login,
            self._change_user,
            self._outlive_session,
        )
        while not self.world.stopping:
            await asyncio.sleep(2 * self.rng.random() * security.think_seconds)
            (kind,) = self.rng.choices(kinds, KINDS)
            try:
                await kind(self._random_node())
            except OSError:
                await self.backoff()
        self.close()

    # requests after the login

    async def _request(self, node: int) -> None:
        name = self.rng.choice(list(ATTEMPTS))
        attempt = ATTEMPTS[name]
        version = self.rng.choice(attempt.versions)
        target = self._target()
        response, errors = await self._send(node, name, attempt, attempt.build(target), version)
        self._evidence.intrusions[-1].carried_out = (
            not errors and getattr(response, "producer_id", None) == target.producer_id
        )
        if attempt.compared and attempt.errors is not None:
            missing = attempt.build(target.missing())
            recorded = self._evidence.intrusions[-1]
            _, recorded.errors_of_missing = await self._send(
                node, f"{name} with a missing name", attempt, missing, version
            )

    async def _send(
        self, node: int, name: str, attempt: Attempt, request: "Message", version: int
    ) -> tuple[object, tuple[int, ...]]:
        """Send a request, record its response, and return it with its errors."""
        response = await self.call(request, version, node)
        errors = tuple(code for code in error_codes(response) if code)
        leaked = self._secrets.in_response(encode(request, version), encode(response, version))
        what = f"{name} v{version}"
        broker = self.world.cluster.machine(node).name
        self._evidence.intrusions.append(Intrusion(what, broker, attempt.errors, errors, leaked))
        self.world.count("intrusion refused" if errors else "intrusion without an error")
        return response, errors

    def _target(self) -> Target:
        rng = self.rng
        topic = rng.choice(OTHERS)
        producer_id, epoch = self._identity()
        return Target(
            topic,
            self._topic_ids[topic],
            rng.choice(self._groups),
            rng.choice(self._ids),
            producer_id,
            epoch,
            self._member(),
            self._random_node(),
            rng.randrange(6),
        )

    def _identity(self) -> tuple[int, int]:
        """Return a producer id and epoch that another tenant uses."""
        for operation in reversed(self.world.history.operations):
            if operation.kind == INIT and operation.outcome == OK and self.rng.random() < 0.5:
                return operation.result_producer_id, operation.result_producer_epoch
        return UNUSED_PRODUCER_ID, 0

    def _member(self) -> str:
        """Return the member id of a member of a group of another tenant."""
        for operation in reversed(self.world.history.operations):
            if operation.kind == JOIN and operation.member:
                return operation.member
        return "member"

    async def _forge(self, node: int) -> None:
        """Send a request of a node. The broker must refuse it or close the connection."""
        request, version = forge(self._victim, self.rng)
        connection = await self._connect(node)
        await log_in(connection, self._credentials.client())
        await self._must_fail(node, f"forged {request.NAME} v{version}", connection, request, version)

    async def _must_fail(
        self,
        node: int,
        what: str,
        connection: RawClient,
        request: "Message",
        version: int,
        *,
        without_response: bool = False,
    ) -> None:
        """Send a request that must have an error or end the connection; with `without_response`, only the latter."""
        broker = self.world.cluster.machine(node).name
        intrusion = Intrusion(what, broker, None)
        try:
            response = await connection.call(request, version, timeout=CALL_SECONDS)
        except OSError:
            self.world.count("intrusion ended the connection")
        else:
            intrusion.carried_out = without_response or not any(error_codes(response))
            self._evidence.intrusions.append(intrusion)
            self.world.count("intrusion refused")
        connection.abort()

    async def _must_end(self, node: int, what: str, connection: RawClient) -> None:
        """Send a request of any kind on a connection without a valid session."""
        name = self.rng.choice(list(ATTEMPTS))
        attempt = ATTEMPTS[name]
        request, version = attempt.build(self._target()), self.rng.choice(attempt.versions)
        await self._must_fail(node, f"{name} {what}", connection, request, version, without_response=True)

    # logins

    async def _connect(self, node: int, port: int = PORT) -> RawClient:
        connecting = RawClient.connect(host_name(node), port, client_id=client_id_of(MALLORY, self.name))
        return await asyncio.wait_for(connecting, CONNECT_SECONDS)

    async def _guess_password(self, node: int) -> None:
        """Log in with a wrong password, or with the own one on the listener of the brokers."""
        if self.rng.random() < INTERNAL_PROBABILITY:
            connection = await self._connect(node, INTERNAL_PORT)
            await self._login_must_fail(node, "login on the listener of brokers", connection, self._credentials)
            return
        user = self.rng.choice((ADMIN, ALICE, BOB, "absent"))
        credentials = Credentials(user, self.name, self.rng.randrange(1 << 30), password="a guess")
        connection = await self._connect(node)
        await self._login_must_fail(node, f"login as {user} with a wrong password", connection, credentials)

    async def _login_must_fail(self, node: int, what: str, connection: RawClient, credentials: Credentials) -> None:
        broker = self.world.cluster.machine(node).name
        intrusion = Intrusion(what, broker, None, carried_out=True)
        try:
            await log_in(connection, credentials.client())
        except LoginFailed:
            intrusion.carried_out = False
            self.world.count("login of an intruder refused")
        self._evidence.intrusions.append(intrusion)
        connection.abort()

    async def _skip_login(self, node: int) -> None:
        await self._must_end(node, "before the login", await self._connect(node))

    async def _outlive_session(self, node: int) -> None:
        connection = await self._connect(node)
        lifetime = await log_in(connection, self._credentials.client())
        if lifetime and lifetime <= WAITED_SECONDS_MAX:
            await asyncio.sleep(EXPIRED * lifetime)
            await self._must_end(node, "after the end of its session", connection)
            self.world.count("session of an intruder ended")
        connection.abort()

    async def _change_user(self, node: int) -> None:
        """Log in, and authenticate again as another user of the hostile tenant, with its valid password."""
        connection = await self._connect(node)
        await log_in(connection, self._credentials.client())
        await self._login_must_fail(
            node, "repeated login as another user", connection, Credentials(EVE, self.name, self.world.options.seed)
        )
