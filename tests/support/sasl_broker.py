"""A broker as a process, with a listener with SASL_PLAINTEXT and all mechanisms, and the settings of its clients."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.support.single_broker import SingleBroker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "s3cret, with =signs"
ISSUER, AUDIENCE = "https://login.example", "odradek"


class SaslBroker(SingleBroker):
    """The broker, with one user that has a credential for each mechanism."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key = rsa.generate_private_key(65_537, 2_048)
        public = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True) | {"kid": "one", "use": "sig"}
        jwks, first_users = folder / "jwks.json", folder / "first-users"
        jwks.write_text(json.dumps({"keys": [public]}))
        scram = [name for name in MECHANISMS if name.startswith("SCRAM")]
        first_users.write_text("".join(f'{name}=[name={USER},password="{PASSWORD}"]\n' for name in scram))
        rows = {
            "odradek.bootstrap.scram.file": str(first_users),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.clients.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            "listener.name.clients.oauthbearer.sasl.jaas.config": (
                f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": (
                f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            **(settings or {}),
        }
        super().__init__(folder, {"CLIENTS": "SASL_PLAINTEXT"}, rows)
        self.sasl = self.addresses["CLIENTS"]

    def token(self, *, expires_in_s: int = 600, audience: str = AUDIENCE) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": audience, "sub": USER, "iat": now, "exp": now + expires_in_s}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": "one"})


def java_properties(mechanism: str, password: str = PASSWORD, token_file: Path | None = None) -> dict[str, str]:
    """Return the client properties of Kafka's Java clients."""
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        assert token_file is not None
        return properties | {
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.oauthbearer.token.endpoint.url": token_file.as_uri(),
            "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        }
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return properties | {"sasl.jaas.config": f'{MODULES}.{module} required username="{USER}" password="{password}";'}
