"""Delegation tokens: decisions of the controller, with the errors of Kafka's DelegationTokenControlManager."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from odradek.cluster.controller.commands import CreateToken, ExpireToken, RemoveExpiredTokens, RenewToken
from odradek.cluster.controller.messages.tokens import CreatedToken, NewToken, TokenRules
from odradek.cluster.controller.settings import tokens
from odradek.cluster.metadata.records import decode_record
from odradek.cluster.metadata.tokens import DelegationToken
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.primitives import INT64_MAX
from tests.support.raft_memory import ControllerRig

E = ErrorCode
RULES = TokenRules(b"secret key", max_lifetime_ms=1_000, validity_ms=400)
ALICE = NewToken("User:alice", "User:alice", ("User:renewer",))


def rig(rules: TokenRules = RULES) -> ControllerRig:
    return ControllerRig(tokens=rules).with_brokers(1)


def create(controller: ControllerRig, new: NewToken = ALICE) -> CreatedToken:
    created = controller.do(CreateToken(new))
    assert isinstance(created, CreatedToken)
    return created


def tokens_of(controller: ControllerRig) -> dict[str, DelegationToken]:
    return dict(controller.core.state.image.tokens)


def refusal(controller: ControllerRig, command: CreateToken | RenewToken | ExpireToken) -> ErrorCode:
    before = len(controller.log)
    with pytest.raises(Refusal) as refused:
        controller.do(command)
    assert len(controller.log) == before
    return refused.value.error


@pytest.mark.parametrize(
    ("lifetime_ms", "max_ms", "expires_ms"),
    [(-1, 2_000, 1_400), (0, 2_000, 1_400), (300, 1_300, 1_300), (5_000, 2_000, 1_400), (INT64_MAX, 2_000, 1_400)],
)
def test_new_token_has_the_lifetime_of_the_rules_or_a_shorter_requested_one(
    lifetime_ms: int, max_ms: int, expires_ms: int
) -> None:
    controller = rig()
    created = create(controller, replace(ALICE, max_lifetime_ms=lifetime_ms))
    token = DelegationToken("User:alice", "User:alice", ("User:renewer",), 1_000, max_ms, expires_ms)
    assert created.token == token
    assert tokens_of(controller) == {created.token_id: token}
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", created.token_id)


def test_times_of_a_token_without_limits_are_valid() -> None:
    created = create(rig(TokenRules(b"key", INT64_MAX, INT64_MAX)))
    assert (created.token.max_ms, created.token.expires_ms) == (INT64_MAX, INT64_MAX)


def test_secret_is_the_hmac_sha512_of_the_id_as_in_rfc_4231() -> None:
    assert TokenRules(b"Jefe").hmac("what do ya want for nothing?").hex() == (
        "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
        "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
    )


def test_record_is_that_of_kafka_and_has_no_secret() -> None:
    controller = rig()
    created = create(controller)
    value = bytes(controller.log[-1].value or b"")
    assert value[:3] == b"\x01\x0a\x00"
    assert created.hmac not in value
    assert RULES.key not in value
    assert "token_id='" + created.token_id in repr(decode_record(value))


def test_token_is_renewed_by_its_owner_and_its_renewers_until_its_maximum() -> None:
    controller = rig()
    created = create(controller)
    controller.now_ms = 1_300
    assert controller.do(RenewToken("User:alice", created.hmac, -1)) == 1_700
    assert controller.do(RenewToken("User:renewer", created.hmac, 50)) == 1_350
    assert controller.do(RenewToken("User:renewer", created.hmac, 5_000)) == 1_700
    controller.now_ms = 1_700
    assert controller.do(RenewToken("User:alice", created.hmac, -1)) == 2_000
    assert tokens_of(controller) == {created.token_id: replace(created.token, expires_ms=2_000)}
    assert refusal(controller, RenewToken("User:bob", created.hmac, -1)) is E.DELEGATION_TOKEN_OWNER_MISMATCH
    controller.now_ms = 2_001
    assert refusal(controller, RenewToken("User:alice", created.hmac, -1)) is E.DELEGATION_TOKEN_EXPIRED
    assert refusal(controller, RenewToken("User:bob", created.hmac, -1)) is E.DELEGATION_TOKEN_EXPIRED


def test_requester_that_is_not_the_owner_may_not_renew() -> None:
    controller = rig()
    created = create(controller, replace(ALICE, requester="User:admin"))
    assert created.token.requester == "User:admin"
    assert refusal(controller, RenewToken("User:admin", created.hmac, -1)) is E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refusal(controller, ExpireToken("User:admin", created.hmac, -1)) is E.DELEGATION_TOKEN_OWNER_MISMATCH


def test_token_expires_after_the_given_period_and_is_removed_by_a_negative_one() -> None:
    controller = rig()
    created, other = create(controller), create(controller)
    assert controller.do(ExpireToken("User:renewer", created.hmac, 100)) == 1_100
    assert controller.do(ExpireToken("User:alice", other.hmac, 5_000)) == 2_000
    controller.now_ms = 1_101
    assert refusal(controller, ExpireToken("User:alice", created.hmac, 100)) is E.DELEGATION_TOKEN_EXPIRED
    assert refusal(controller, ExpireToken("User:bob", created.hmac, -1)) is E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert controller.do(ExpireToken("User:alice", created.hmac, -1)) == 1_101
    assert list(tokens_of(controller)) == [other.token_id]
    assert refusal(controller, ExpireToken("User:alice", created.hmac, -1)) is E.DELEGATION_TOKEN_NOT_FOUND
    assert refusal(controller, RenewToken("User:alice", created.hmac, -1)) is E.DELEGATION_TOKEN_NOT_FOUND


def test_expired_tokens_are_removed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = rig()
    for _ in range(3):
        create(controller)
    controller.now_ms = 1_400
    kept = create(controller)
    controller.do(RemoveExpiredTokens())
    assert len(tokens_of(controller)) == 4
    controller.now_ms = 1_401
    monkeypatch.setattr(tokens, "REMOVALS_PER_JOB_MAX", 2)
    controller.do(RemoveExpiredTokens())
    assert len(tokens_of(controller)) == 2
    controller.run_due()
    assert list(tokens_of(controller)) == [kept.token_id]


def test_cluster_without_a_key_refuses_each_request() -> None:
    created = create(rig())
    controller = rig(TokenRules())
    assert refusal(controller, CreateToken(ALICE)) is E.DELEGATION_TOKEN_AUTH_DISABLED
    assert refusal(controller, RenewToken("User:alice", created.hmac, -1)) is E.DELEGATION_TOKEN_AUTH_DISABLED
    assert refusal(controller, ExpireToken("User:alice", created.hmac, -1)) is E.DELEGATION_TOKEN_AUTH_DISABLED
    assert controller.core.on_loaded(1, 0).timers == rig(TokenRules()).core.on_loaded(1, 0).timers
    jobs = [timer.key for timer in rig().core.on_loaded(1, 0).timers]
    assert "RemoveExpiredTokens" in jobs
    assert "RemoveExpiredTokens" not in [timer.key for timer in controller.core.on_loaded(1, 0).timers]


@pytest.mark.parametrize(
    "new", [replace(ALICE, owner="Group:a"), replace(ALICE, owner="Node:cluster"), replace(ALICE, renewers=("a",))]
)
def test_owner_or_renewer_that_is_no_user_is_refused(new: NewToken) -> None:
    assert refusal(rig(), CreateToken(new)) is E.INVALID_PRINCIPAL_TYPE


def test_tokens_above_the_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = rig()
    long = replace(ALICE, renewers=("User:" + "x" * 4_096,))
    assert refusal(controller, CreateToken(long)) is E.POLICY_VIOLATION
    monkeypatch.setattr(tokens, "OWNER_TOKENS_MAX", 2)
    monkeypatch.setattr(tokens, "TOKENS_MAX", 3)
    create(controller), create(controller)
    assert refusal(controller, CreateToken(ALICE)) is E.POLICY_VIOLATION
    create(controller, replace(ALICE, owner="User:bob"))
    assert refusal(controller, CreateToken(replace(ALICE, owner="User:carol"))) is E.POLICY_VIOLATION


def test_new_controller_finds_the_tokens_of_its_image() -> None:
    former = rig()
    created = create(former)
    controller = rig()
    controller.core.state.start_from(former.core.state.image)
    assert controller.do(RenewToken("User:alice", created.hmac, -1)) == 1_400


def test_representations_contain_no_secret() -> None:
    created = create(rig())
    text = repr((RULES, created, RenewToken("User:a", created.hmac, 1), ExpireToken("User:a", created.hmac, 1)))
    assert repr(created.hmac)[2:-1] not in text
    assert "secret key" not in text
