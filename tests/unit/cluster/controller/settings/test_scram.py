"""AlterScramCredentials: decisions of the controller, with the errors of Kafka's ScramControlManager."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.cluster.controller.commands import AlterScramCredentials, Bootstrap
from odradek.cluster.controller.messages.settings import NewScramCredential, ScramChange, ScramResult
from odradek.cluster.controller.settings.scram import SALT_BYTES_MAX
from odradek.cluster.controller.slices import RECORDS_PER_SLICE, slices_of
from odradek.cluster.metadata.records import UserScramCredentialRecord, decode_record
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, Credential
from tests.support.raft_memory import ControllerRig

E = ErrorCode
SALT = b"salt"
SALTED = SCRAM_SHA_256.salted(b"secret", SALT, 8_192)
NEW = NewScramCredential(8_192, SALT, SALTED)
ALICE = ScramChange("alice", 1, NEW)
DUPLICATE = "A user credential cannot be altered twice in the same request"


def rig() -> ControllerRig:
    return ControllerRig().with_brokers(1)


def test_credentials_are_set_replaced_and_removed() -> None:
    controller = rig()
    bob = ScramChange("bob", 2, replace(NEW, iterations=4_096))
    assert controller.do(AlterScramCredentials((ALICE, bob))) == (ScramResult("alice"), ScramResult("bob"))
    scram = controller.core.state.image.scram
    assert list(scram) == [("alice", 1), ("bob", 2)]
    assert scram["alice", 1] == Credential.of_password(SCRAM_SHA_256, b"secret", SALT, 8_192)
    assert scram["bob", 2] == Credential.of_salted(SCRAM_SHA_512, SALTED, SALT, 4_096)
    controller.do(AlterScramCredentials((replace(ALICE, new=replace(NEW, iterations=16_384)),)))
    assert controller.core.state.image.scram["alice", 1].iterations == 16_384
    assert controller.do(AlterScramCredentials((replace(ALICE, new=None),))) == (ScramResult("alice"),)
    assert list(controller.core.state.image.scram) == [("bob", 2)]


def test_record_is_that_of_kafka_and_has_no_password() -> None:
    controller = rig()
    controller.do(AlterScramCredentials((ALICE,)))
    value = controller.log[-1].value
    assert value is not None
    assert bytes(value)[:3] == b"\x01\x0b\x00"
    assert SALTED not in bytes(value)
    record = decode_record(value)
    assert isinstance(record, UserScramCredentialRecord)
    expected = Credential.of_password(SCRAM_SHA_256, b"secret", SALT, 8_192)
    assert (record.name, record.mechanism, bytes(record.salt), record.iterations) == ("alice", 1, SALT, 8_192)
    assert (bytes(record.stored_key), bytes(record.server_key)) == (expected.stored_key, expected.server_key)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (replace(ALICE, user=""), E.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (replace(ALICE, mechanism=0), E.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (replace(ALICE, mechanism=3), E.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (replace(ALICE, new=replace(NEW, iterations=4_095)), E.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (replace(ALICE, new=replace(NEW, iterations=16_385)), E.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            replace(ALICE, new=replace(NEW, salt=bytes(SALT_BYTES_MAX + 1))),
            E.UNACCEPTABLE_CREDENTIAL,
            "The salt has more than 1024 bytes",
        ),
        (
            replace(ALICE, new=None),
            E.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_invalid_change_is_refused_and_other_users_are_changed(
    change: ScramChange, error: ErrorCode, message: str
) -> None:
    controller = rig()
    bob = replace(ALICE, user="bob")
    results = controller.do(AlterScramCredentials((change, bob)))
    assert results == (ScramResult(change.user, error, message), ScramResult("bob"))
    assert list(controller.core.state.image.scram) == [("bob", 1)]


def test_user_that_is_named_twice_is_refused_as_a_whole() -> None:
    controller = rig()
    controller.do(AlterScramCredentials((ALICE,)))
    for changes in (
        (ALICE, replace(ALICE, mechanism=2)),
        (replace(ALICE, new=None), replace(ALICE, mechanism=2)),
        (ALICE, ALICE, ALICE),
    ):
        before = len(controller.log)
        assert controller.do(AlterScramCredentials(changes)) == (ScramResult("alice", E.DUPLICATE_RESOURCE, DUPLICATE),)
        assert len(controller.log) == before
    invalid = replace(ALICE, mechanism=9)
    (result,) = controller.do(AlterScramCredentials((invalid, ALICE)))
    assert result.error is E.UNSUPPORTED_SASL_MECHANISM


def test_many_changes_are_divided_into_slices_by_user() -> None:
    controller = rig()
    state = controller.core.state
    many = tuple(replace(ALICE, user=f"u-{number}") for number in range(2 * RECORDS_PER_SLICE))
    assert len(slices_of(state, AlterScramCredentials(many))) == 2
    parts = slices_of(state, AlterScramCredentials((*many, replace(ALICE, user="u-0", new=None))))
    commands = [part.command for part in parts if isinstance(part.command, AlterScramCredentials)]
    assert sum(change.user == "u-0" for change in commands[0].changes) == 2
    with pytest.raises(Refusal) as refused:
        slices_of(state, AlterScramCredentials((ALICE,) * 10_001))
    assert refused.value.error is E.POLICY_VIOLATION


def test_first_credentials_are_written_to_an_empty_log_alone() -> None:
    credential = Credential.of_salted(SCRAM_SHA_256, SALTED, SALT, 8_192)
    controller = ControllerRig()
    controller.do(Bootstrap(scram={("admin", 1): credential}))
    assert controller.core.state.image.scram == {("admin", 1): credential}
    controller.do(Bootstrap(scram={("other", 1): credential}))
    assert list(controller.core.state.image.scram) == [("admin", 1)]


def test_representations_contain_no_secret() -> None:
    credential = Credential.of_salted(SCRAM_SHA_256, SALTED, SALT, 8_192)
    text = repr((AlterScramCredentials((ALICE,)), credential))
    for secret in (SALT, SALTED, credential.stored_key, credential.server_key):
        assert repr(secret)[2:-1] not in text
