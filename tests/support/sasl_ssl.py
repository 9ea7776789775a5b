"""Settings of brokers and clients for SASL_SSL with PLAIN: a certificate, and users with generated passwords."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from tests.support.certificates import issue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LISTENER = "SECURED"
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROTOCOL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


class SaslSsl:
    """Settings in the names of Apache Kafka and of librdkafka. `of_broker` belongs to a listener named `LISTENER`."""

    def __init__(self, folder: Path, users: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._passwords = {user: secrets.token_hex(16) for user in users}
        authority = issue("authority", ca=True)
        node = issue("node", authority, hosts=["127.0.0.1"])
        (folder / "node.pem").write_text(node.key_pem() + node.chain_pem)
        self._authority = folder / "authority.pem"
        self._authority.write_text(authority.pem)
        credentials = " ".join(f'user_{user}="{password}"' for user, password in self._passwords.items())
        self.of_broker = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "node.pem"),
            "sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": f"{LOGIN_MODULE} {credentials};",
        }

    def librdkafka(self, user: str) -> dict[str, str]:
        return {
            **PROTOCOL,
            "ssl.ca.location": str(self._authority),
            "sasl.username": user,
            "sasl.password": self._passwords[user],
        }

    def java(self, user: str) -> dict[str, str]:
        return {
            **PROTOCOL,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
            "sasl.jaas.config": f'{LOGIN_MODULE} username="{user}" password="{self._passwords[user]}";',
        }
