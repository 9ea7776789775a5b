"""Changes of the security during a run: certificates, authorities, passwords, keys, and the ACL of one tenant.

The steps follow each other in a fixed order, beside the other faults. No tenant except the one whose ACL is removed may
notice them: the audit logs of the brokers show each denied operation.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import ssl
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek import client
from odradek.client.security.tls import context_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest
from tests.chaos.clients.login import LoginRefused, log_in
from tests.chaos.journal import now
from tests.chaos.key_rotation import KeyRotation
from tests.chaos.plan import FAULT_FREE_SECONDS
from tests.chaos.security import (
    ADMIN,
    HOSTILE,
    MECHANISM_OF,
    PASSWORD_BYTES,
    ROTATED,
    TENANT,
    TENANT_TOPIC,
    acls,
    tenant_acl,
)
from tests.chaos.system import bootstrap
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from odradek.pipeline.cluster.access import Access
    from tests.chaos.fault_injector import FaultInjector
    from tests.chaos.security import ChaosSecurity
    from tests.chaos.system import System

RELOAD_SECONDS: Final = 7.0
"""Time after which each broker uses replaced files, in seconds: it checks them every 5 s.

The event in the log of a broker cannot replace this wait: a broker that starts meanwhile uses the new files without it.
"""
STEP_SECONDS_MAX: Final = 60.0
"""Maximum time for a request of a step, which is repeated while brokers are down."""
APPLIED_SECONDS_MAX: Final = 20.0
"""Maximum time until a running broker has a new password, ACL or certificate."""
RETRY_SECONDS: Final = 0.2
CONNECT_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 1.0
"""Pause between two steps."""
REPLACE_SECONDS: Final = 0.3
ADDRESS: Final = ("127.0.0.3", 0)
"""Local address of direct connections: refused passwords must not slow the logins of other clients."""
METADATA_VERSION: Final = 9
DENIED: Final = re.compile(r"operation denied\b.*\bprincipal='?User:([\w-]+)")
REFUSALS: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
FAILURES: Final = (client.ClientError, OSError, TimeoutError)
T = TypeVar("T")


class SecurityFaults:
    """The steps of one run. `violations` and `counters` have the results."""

    def __init__(self, system: System, security: ChaosSecurity, injector: FaultInjector) -> None:
        self.violations: list[str] = []
        self.delays: list[str] = []
        self.counters: Counter[str] = Counter()
        self._system = system
        self._security = security
        self._injector = injector
        self._bootstrap = bootstrap(system.ports)
        self._stopped = asyncio.Event()
        self.keys = KeyRotation(system, security, self._accepts, self.violations, self.delays, self.counters)

    async def run(self) -> None:
        """Carry out steps, and rotate keys beside them, until `stop`. End the current step."""
        await asyncio.gather(self._carry_out_steps(), self.keys.run(self._stopped))

    async def _carry_out_steps(self) -> None:
        await self._pause(FAULT_FREE_SECONDS)
        steps = (
            self.replace_certificates,
            self.change_acl,
            self.rotate_tenant,
            self.trust_both,
            self.replace_authority,
            self.trust_one,
            self.rotate_writer,
        )
        while not self._stopped.is_set():
            for step in steps:
                if self._stopped.is_set():
                    return
                number = self._injector.journal.invoke("security", step=step.__name__)
                await step()
                self._injector.journal.complete("security", number, "ok")
                await self._pause(PAUSE_SECONDS)

    def stop(self) -> None:
        """End `run` after its current step."""
        self._stopped.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    # ---- certificates -----------------------------------------------------------------------------------------------

    async def replace_certificates(self) -> None:
        """Replace the certificates of all brokers and of the proxy."""
        self._write_certificates()
        self.counters["security: certificates replaced"] += 1

    async def trust_both(self) -> None:
        """Trust both authorities, and wait for the time in which each broker reads the file."""
        self._security.trusted = {0, 1}
        self._write_trust()
        await asyncio.sleep(RELOAD_SECONDS)

    async def replace_authority(self) -> None:
        """Replace the certificates by those of the other authority, and wait for the time of the reload."""
        self._security.signing = 1 - self._security.signing
        self._write_certificates()
        self.counters["security: authority replaced"] += 1
        await asyncio.sleep(RELOAD_SECONDS)

    async def trust_one(self) -> None:
        """Trust the authority that signs, and not the other one."""
        self._security.trusted = {self._security.signing}
        self._write_trust()

    def _write_certificates(self) -> None:
        self._security.write_certificates(list(self._system.ports))
        self._injector.proxy.send("replace_certificates")

    def _write_trust(self) -> None:
        self._security.write_trust()
        self._injector.proxy.send("replace_certificates")

    async def check_certificates(self) -> None:
        """Check that each broker presents its newest certificate."""
        for node, ports in self._system.ports.items():
            expected = ssl.PEM_cert_to_DER_cert(_certificate(self._security.broker(node).read_text()))
            deadline = now() + APPLIED_SECONDS_MAX
            while (presented := await asyncio.to_thread(_presented, ports.clients)) != expected:
                if now() > deadline:
                    what = "no certificate" if presented is None else "a certificate that was replaced"
                    self.violations.append(f"broker {node} presents {what}")
                    break
                await asyncio.sleep(RETRY_SECONDS)

    # ---- ACLs -------------------------------------------------------------------------------------------------------

    async def create_acls(self) -> None:
        """Create the ACLs of all users, and wait until each broker has them."""
        wanted = acls()
        await self._as_admin(lambda cluster: client.create_acls(cluster, wanted))
        for ports in self._system.ports.values():
            access = self._security.access(f"127.0.0.1:{ports.clients_proxy}", ADMIN)
            async with asyncio.timeout(STEP_SECONDS_MAX), access.cluster() as cluster:
                while True:
                    if set(wanted) <= set(await client.describe_acls(cluster)):
                        break
                    await asyncio.sleep(RETRY_SECONDS)

    async def change_acl(self) -> None:
        """Remove the ACL of the tenant, and add it again. The tenant must be refused, and then accepted."""
        acl = tenant_acl()
        wanted = client.AclFilter(principal=acl.principal)
        await self._expect_writes(accepted=True)
        await self._as_admin(lambda cluster: client.delete_acls(cluster, wanted))
        await self._expect_writes(accepted=False)
        await self._as_admin(lambda cluster: client.create_acls(cluster, [acl]))
        await self._expect_writes(accepted=True)
        self.counters["security: ACL removed and added"] += 1

    async def _expect_writes(self, *, accepted: bool) -> None:
        """Wait until a write of the tenant is accepted, or refused."""
        deadline = now() + STEP_SECONDS_MAX
        result: bool | None = None
        while result is not accepted:
            if now() > deadline:
                self.delays.append(f"L1 a write of the tenant was not {'accepted' if accepted else 'refused'}")
                return
            result = await self._tenant_writes()
            await asyncio.sleep(0 if result is accepted else RETRY_SECONDS)

    async def _tenant_writes(self) -> bool | None:
        """Write a record as the tenant. Return True if it is accepted, False if it is refused, None if unknown."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS), self._access(TENANT).cluster() as cluster:
                await client.Producer(cluster).send(TENANT_TOPIC, [client.ProducerRecord(None, b"tenant")])
        except client.Refused as refusal:
            return False if refusal.code in REFUSALS else None
        except FAILURES:
            return None
        return True

    # ---- passwords --------------------------------------------------------------------------------------------------

    async def rotate_tenant(self) -> None:
        """Change the password of the tenant.

        A session with the old password continues, and a new one needs the new password.
        """
        node = next(iter(self._system.running()), None)
        if node is None:
            return
        port = self._system.ports[node].clients
        old = self._access(TENANT)
        session = await self._session(port, old)
        await self._set_password(TENANT)
        accepted = await self._await_login(port, self._access(TENANT))
        if session is None or not accepted:
            self.counters["security: passwords rotated during a fault"] += 1
            return
        try:
            await session.call(MetadataRequest([]), METADATA_VERSION, timeout=CONNECT_SECONDS)
            refused = await self._session(port, old)
        except LoginRefused:
            self.counters["security: passwords rotated"] += 1
        except OSError:
            self.counters["security: passwords rotated during a fault"] += 1
        else:
            if refused is not None:
                self.violations.append(f"broker {node} accepted a password that was changed")
                refused.close()
        finally:
            session.close()

    async def rotate_writer(self) -> None:
        """Change the password of one user of the fleet, and restart its processes with the new one."""
        await self._set_password(ROTATED)
        path = str(self._security.properties(ROTATED))
        for member in self._injector.fleet.producers():
            if member.spec.security == path:
                await self._injector.kill_client(member, REPLACE_SECONDS)
                self.counters["security: clients restarted with a new password"] += 1

    async def _set_password(self, user: str) -> None:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        await self._as_admin(lambda cluster: client.set_user(cluster, user, password, MECHANISM_OF[user]))
        self._security.set_password(user, password)

    async def _session(self, port: int, access: Access) -> RawClient | None:
        """Return a logged-in connection to a broker, or None if it is not reachable. Raise LoginRefused."""
        tls = access.security.tls
        assert tls is not None
        raw: RawClient | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                raw = await RawClient.connect("127.0.0.1", port, tls=context_of(tls), local_addr=ADDRESS)
                await log_in(partial(raw.call, timeout=CONNECT_SECONDS), access)
        except BaseException as failure:
            if raw is not None:
                raw.close()
            if isinstance(failure, OSError | TimeoutError):
                return None
            raise
        return raw

    async def _accepts(self, port: int, access: Access) -> bool | None:
        """Log in at a broker. Return True if it accepts the credentials, None if it is not reachable."""
        try:
            session = await self._session(port, access)
        except LoginRefused:
            return False
        if session is None:
            return None
        session.close()
        return True

    async def _await_login(self, port: int, access: Access) -> bool:
        """Wait until a broker accepts a password. Return False after APPLIED_SECONDS_MAX: it may be down."""
        deadline = now() + APPLIED_SECONDS_MAX
        while now() < deadline:
            if await self._accepts(port, access):
                return True
            await asyncio.sleep(RETRY_SECONDS)
        return False

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _access(self, user: str) -> Access:
        return self._security.access(self._bootstrap, user)

    async def _as_admin(self, operation: Callable[[client.Cluster], Awaitable[T]]) -> T:
        """Return the result of an operation, which is repeated while it fails, for at most STEP_SECONDS_MAX."""
        deadline = now() + STEP_SECONDS_MAX
        while True:
            try:
                async with asyncio.timeout(CONNECT_SECONDS), self._access(ADMIN).cluster() as cluster:
                    return await operation(cluster)
            except FAILURES:
                if now() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)


def _certificate(text: str) -> str:
    """Return the certificate of a file that also has its key."""
    return text[text.index("-----BEGIN CERTIFICATE") :]


def _presented(port: int) -> bytes | None:
    """Return the certificate that a broker presents, or None if it does not respond."""
    with suppress(OSError):
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=CONNECT_SECONDS))
    return None


def denied_users(logs: Iterable[str]) -> Counter[str]:
    """Return the number of denied operations in the audit logs by user."""
    return Counter(user for text in logs for user in DENIED.findall(text))


def unexpected_denials(logs: Iterable[str]) -> list[str]:
    """Return one line per user whose operations were denied although none of its ACLs was removed."""
    found = denied_users(logs)
    return [f"{count} operations of {user} were denied" for user, count in found.items() if user not in EXPECTED]


EXPECTED: Final = frozenset({HOSTILE, TENANT})
"""Users whose operations are denied in a run."""


async def topic_ids(access: Access, names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return topic id and partition count of each topic."""
    async with access.cluster() as cluster:
        topics: dict[str, Any] = dict((await cluster.fetch_metadata(list(names))).topics)
    return {name: (str(topic.topic_id), len(topic.partitions)) for name, topic in topics.items()}
