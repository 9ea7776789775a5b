"""AlterUserScramCredentials: what the audit log has of a request."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis.alter_user_scram_credentials import handle
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)


async def test_audited_decision_names_the_users_and_no_credential() -> None:
    audited: list[tuple[AclOperation, list[str]]] = []

    def allowed(operation: AclOperation, about: Iterable[str] = ()) -> bool:
        audited.append((operation, list(about)))
        return False

    context: Any = SimpleNamespace(allowed_on_cluster=allowed)
    request = AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion("bob", 1)], [ScramCredentialUpsertion("carol", 1, 4_096, b"salt", b"salted")]
    )
    with pytest.raises(Refusal) as refusal:
        await handle(context, request)
    assert refusal.value.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert audited == [(AclOperation.ALTER, ["user bob", "user carol"])]
