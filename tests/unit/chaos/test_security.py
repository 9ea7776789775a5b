"""Users and files of a secured chaos run, and the denials in the audit logs."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from tests.chaos.fleet import FULL_CLIENTS, FULL_GROUPS
from tests.chaos.security import ADMIN, HOSTILE, MECHANISM_OF, TENANT, ChaosSecurity, acls, user_of
from tests.chaos.security_faults import denied_users, unexpected_denials

if TYPE_CHECKING:
    from pathlib import Path

LINE = (
    "2026-11-28T14:16:00.7Z [info     ] operation denied               [odradek.audit] address=127.0.0.2"
    " api=Fetch names=['t'] node=3 operation=READ principal=User:{} resource=TOPIC rule='no ACL'\n"
)


def test_clients_use_each_mechanism_and_only_the_hostile_user_and_the_super_user_have_no_acl() -> None:
    users = {user_of(library, kind.partition(" ")[0]) for library, kind in FULL_CLIENTS}
    users |= {user_of(library, kind) for library, kind, _, _ in FULL_GROUPS}
    assert {MECHANISM_OF[user] for user in users} == {"OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert {acl.principal.removeprefix("User:") for acl in acls()} == set(MECHANISM_OF) - {ADMIN, HOSTILE}


def test_certificate_of_the_second_authority_is_trusted_after_both_were(tmp_path: Path) -> None:
    security = ChaosSecurity(tmp_path / "security")
    security.prepare([1])
    first = security.broker(1).read_text()
    assert security.broker(1).stat().st_mode & 0o077 == security.properties(HOSTILE).stat().st_mode & 0o077 == 0
    security.signing = 1
    security.write_certificates([1])
    assert security.broker(1).read_text() != first
    before = ssl.create_default_context(cafile=security.trust).get_ca_certs(binary_form=True)
    security.trusted = {0, 1}
    security.write_trust()
    after = ssl.create_default_context(cafile=security.trust).get_ca_certs(binary_form=True)
    assert (len(before), len(after)) == (1, 2)
    assert set(after) == set(ssl.create_default_context(cafile=security.client_trust).get_ca_certs(binary_form=True))


def test_denied_operation_of_another_user_than_expected_is_a_violation() -> None:
    logs = [LINE.format(HOSTILE) * 2, LINE.format(TENANT), LINE.format("chaos-writer")]
    assert denied_users(logs) == {HOSTILE: 2, TENANT: 1, "chaos-writer": 1}
    assert unexpected_denials(logs) == ["1 operations of chaos-writer were denied"]
    assert unexpected_denials(logs[:2]) == []
