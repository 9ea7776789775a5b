"""A broker as a process, with listeners for SASL_PLAINTEXT and SASL_SSL, and the settings of its clients."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.support.certificates import issue
from tests.support.single_broker import SingleBroker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "s3cret, with =signs"
ISSUER, AUDIENCE = "https://login.example", "odradek"


LISTENERS = {"CLIENTS": "SASL_PLAINTEXT", "SECURED": "SASL_SSL"}


class SaslBroker(SingleBroker):
    """The broker, with one user that has a credential for each mechanism.

    `sasl` and `sasl_ssl` are the addresses of the listeners, and `authority` is the file of the trusted certificate.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key = rsa.generate_private_key(65_537, 2_048)
        public = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True) | {"kid": "one", "use": "sig"}
        jwks, first_users = folder / "jwks.json", folder / "first-users"
        jwks.write_text(json.dumps({"keys": [public]}))
        scram = [name for name in MECHANISMS if name.startswith("SCRAM")]
        first_users.write_text("".join(f'{name}=[name={USER},password="{PASSWORD}"]\n' for name in scram))
        authority = issue("authority", ca=True)
        node = issue("node", authority, hosts=["127.0.0.1"])
        (folder / "node.pem").write_text(node.key_pem() + node.chain_pem)
        self.authority = folder / "authority.pem"
        self.authority.write_text(authority.pem)
        rows = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "node.pem"),
            "odradek.bootstrap.scram.file": str(first_users),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            **(settings or {}),
        }
        for listener in LISTENERS:
            rows |= login_modules(f"listener.name.{listener.lower()}")
        super().__init__(folder, LISTENERS, rows)
        self.sasl, self.sasl_ssl = self.addresses["CLIENTS"], self.addresses["SECURED"]

    def token(self, *, expires_in_s: int = 600, audience: str = AUDIENCE) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": audience, "sub": USER, "iat": now, "exp": now + expires_in_s}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": "one"})


def login_modules(listener: str) -> dict[str, str]:
    """Return the properties of PLAIN and OAUTHBEARER with the prefix `listener`."""
    return {
        f"{listener}.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        f"{listener}.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        f"{listener}.oauthbearer.sasl.server.callback.handler.class": (
            f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }


def java_properties(
    mechanism: str, password: str = PASSWORD, *, token_file: Path | None = None, authority: Path | None = None
) -> dict[str, str]:
    """Return the properties of Kafka's Java clients: for SASL_SSL with the certificate file `authority`."""
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if authority is not None:
        properties |= {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority),
        }
    if mechanism == "OAUTHBEARER":
        assert token_file is not None
        return properties | {
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.oauthbearer.token.endpoint.url": token_file.as_uri(),
            "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        }
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return properties | {"sasl.jaas.config": f'{MODULES}.{module} required username="{USER}" password="{password}";'}
