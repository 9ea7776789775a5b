"""The servers of SASL exchanges on a listener for clients and nodes."""

from __future__ import annotations

import random

import pytest

from odradek.broker.requests.listener import Listener
from odradek.broker.security.mechanisms import Mechanisms
from odradek.broker.security.sasl_settings import SaslSettings
from odradek.protocol.sasl.cluster_secret import parse_secret
from odradek.protocol.sasl.mechanism import Identity
from odradek.protocol.sasl.scram import ITERATIONS_MIN, SCRAM_SHA_256, Credential, ScramMechanism
from odradek.protocol.sasl.scram_server import Account, ClientFirst
from odradek.protocol.security_protocol import SecurityProtocol

SALTED = Credential.of_password(SCRAM_SHA_256, b"passw0rd", b"salt of alice", ITERATIONS_MIN)


def account_of(mechanism: ScramMechanism, first: ClientFirst) -> Account | None:
    return Account(SALTED, Identity("alice")) if first.user == "alice" and not first.by_token else None


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_salts_of_a_name_in_logins_of_user_token_and_node_do_not_show_whether_the_user_exists(user: str) -> None:
    bits = random.Random(5).getrandbits
    mechanisms = Mechanisms(
        node_id=1,
        random_bits=bits,
        account_of=account_of,
        settings={"CLIENTS": SaslSettings({SCRAM_SHA_256.name: 0}, {}, None)},
        secret=parse_secret(b"x" * 32, "secret", bits),
    )
    protocol = SecurityProtocol.SASL_PLAINTEXT
    listener = Listener("CLIENTS", "host", 1, "host", 1, authenticates=True, security_protocol=protocol)

    def salt(extensions: str) -> bytes:
        exchange = mechanisms.server(listener, SCRAM_SHA_256.name)
        assert exchange is not None
        return exchange.next(f"n,,n={user},r=nonce{extensions}".encode()).message.split(b",")[1]

    salts = [salt(extensions) for extensions in ("", ",tokenauth=true", ",t=1,s=2")]
    assert len(set(salts)) == len(salts)
