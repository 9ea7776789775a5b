"""Names of Kafka's client properties for TLS and SASL."""

from __future__ import annotations

from typing import Final

from odradek.protocol.tls_stores import (
    KEY_PASSWORD,
    KEY_STORE_CHAIN,
    KEY_STORE_KEY,
    KEY_STORE_LOCATION,
    KEY_STORE_PASSWORD,
    KEY_STORE_TYPE,
    TRUST_STORE_CERTIFICATES,
    TRUST_STORE_LOCATION,
    TRUST_STORE_PASSWORD,
    TRUST_STORE_TYPE,
)
from odradek.protocol.tls_suites import CIPHER_SUITES

SECURITY_PROTOCOL: Final = "security.protocol"
HOST_VERIFICATION: Final = "ssl.endpoint.identification.algorithm"
ENABLED_VERSIONS: Final = "ssl.enabled.protocols"
VERSION: Final = "ssl.protocol"
MECHANISM: Final = "sasl.mechanism"
JAAS_CONFIG: Final = "sasl.jaas.config"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  the name of a property
SCOPE: Final = "sasl.oauthbearer.scope"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105  the name of a property
CALLBACK_HANDLER: Final = "sasl.login.callback.handler.class"
SECURITY_PROPERTIES: Final = frozenset({
    SECURITY_PROTOCOL, HOST_VERIFICATION, ENABLED_VERSIONS, VERSION, CIPHER_SUITES, MECHANISM, JAAS_CONFIG, TOKEN_URL,
    SCOPE, CLIENT_ID, CLIENT_SECRET, CALLBACK_HANDLER, KEY_STORE_TYPE,
    KEY_STORE_LOCATION, KEY_STORE_PASSWORD, KEY_STORE_CHAIN, KEY_STORE_KEY,
    KEY_PASSWORD, TRUST_STORE_TYPE, TRUST_STORE_LOCATION,
    TRUST_STORE_PASSWORD, TRUST_STORE_CERTIFICATES,
})  # fmt: skip
"""Properties of Kafka's clients that this client obeys."""
REFUSED: Final = {
    "ssl.engine.factory.class": "remove it: only Java can load the class",
    "sasl.client.callback.handler.class": "remove it: only Java can load the class",
    "sasl.login.class": "remove it: only Java can load the class",
    "sasl.oauthbearer.jwt.retriever.class": f"remove it and set {TOKEN_URL}: only Java can load the class",
}
"""Properties that would change the security of a connection, but have no effect in this client, with the remedy."""
