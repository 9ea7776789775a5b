"""Tenants of a run with SASL and ACLs: their users, and the names and ACLs of their resources."""

from typing import Final

from tests.sim.checkers.acls import ALL, ALLOW, ANY, DENY, GROUP, LITERAL, PREFIXED, READ, WRITE, AclRow
from tests.sim.checkers.acls import TOPIC as TOPIC_TYPE
from tests.sim.checkers.acls import TRANSACTIONAL_ID as ID_TYPE
from tests.sim.world import TABLE, TENANT_TOPICS, TOPIC

ADMIN: Final = "admin"
"""The super user. It makes topics, users and ACLs, and reads everything at the end."""
ALICE: Final = "alice"
"""The tenant of all honest clients that also run without SASL and ACLs."""
BOB: Final = "bob"
"""An honest tenant, whose credential the administrator adds while the cluster runs."""
MALLORY: Final = "mallory"
"""The hostile tenant."""
EVE: Final = "eve"
"""A second user of the hostile tenant, without ACLs."""
BOB_ID, BOB_GROUP = "bob-tx", "bob-group"
MALLORY_TOPIC, MALLORY_GROUP, MALLORY_ID = "mallory-notes", "mallory-group", "mallory-tx"
LENT_TOPICS: Final = ("lent-a", "lent-b")
LENT_GROUP, LENT_ID = "lent-group", "lent-tx"
"""Resources of the administrator, whose ACLs change during the run."""
LENT_PREFIX: Final = "lent-"


def _allow(user: str, resource: int, name: str, pattern: int, operation: int = ALL) -> AclRow:
    return AclRow(resource, name, pattern, f"User:{user}", ANY, operation, ALLOW)


ACLS: Final = (
    _allow(ALICE, TOPIC_TYPE, TOPIC, LITERAL),
    _allow(ALICE, TOPIC_TYPE, TABLE, LITERAL),
    _allow(ALICE, GROUP, ANY, LITERAL),
    _allow(ALICE, ID_TYPE, ANY, LITERAL),
    _allow(BOB, TOPIC_TYPE, "bob-", PREFIXED, READ),
    _allow(BOB, TOPIC_TYPE, "bob-", PREFIXED, WRITE),
    _allow(BOB, GROUP, "bob-", PREFIXED, READ),
    _allow(BOB, ID_TYPE, "bob-", PREFIXED, WRITE),
    _allow(ANY, TOPIC_TYPE, "shared-", PREFIXED, READ),
    _allow(ANY, TOPIC_TYPE, "shared-", PREFIXED, WRITE),
    AclRow(TOPIC_TYPE, TENANT_TOPICS[1], PREFIXED, f"User:{MALLORY}", ANY, ALL, DENY),
    *(_allow(MALLORY, resource, "mallory-", PREFIXED) for resource in (TOPIC_TYPE, GROUP, ID_TYPE)),
)
"""ACLs that stay during the run."""
