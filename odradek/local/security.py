"""Security of a local cluster: its mode and users, and the properties of brokers and clients."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from odradek.local.processes import USAGE, BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ADMIN: Final = "admin"
"""User that may do everything. The commands of the directory use it."""
DEFAULT_USERS: Final = ("alice",)
MECHANISM: Final = "SCRAM-SHA-256"
"""Mechanism of the users that the first start makes."""
MECHANISMS: Final = f"{MECHANISM},SCRAM-SHA-512"
"""Mechanisms of the listener: also the default one of `odradek users add`, for users that are added later."""
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MAPPING_RULES: Final = "RULE:^CN=([^,]+)$/$1/,DEFAULT"
"""Rules that make `User:alice` from the subject `CN=alice` of a certificate."""
NAME_CHARACTERS_MAX: Final = 64
"""Maximum characters of a user name. It is the common name of a certificate (RFC 5280: at most 64)."""
CLIENT_KINDS: Final = ("java", "confluent", "kafka-python", "aiokafka", "spark")
"""Client libraries for which `client_config` returns settings."""


class Mode(StrEnum):
    """Security of the listener for clients. Brokers connect to each other by TLS with certificates in each mode."""

    SSL = "ssl"
    MTLS = "mtls"
    SASL_SSL = "sasl_ssl"

    @property
    def protocol(self) -> str:
        """Security protocol of the listener, which is its name, too."""
        return "SASL_SSL" if self is Mode.SASL_SSL else "SSL"

    @property
    def has_users(self) -> bool:
        """True if clients authenticate as users: by a certificate, or by a password."""
        return self is not Mode.SSL


@dataclass(frozen=True)
class Security:
    """Security of a local cluster.

    Attributes:
        mode: `ssl`: TLS, and clients without authentication. `mtls`: TLS, and each user has a certificate. `sasl_ssl`:
            TLS, and each user has a password for SCRAM-SHA-256.
        users: Names of the users beside `admin`. Each may use topics, groups and transactional ids whose names begin
            with its name and a dash. A cluster that was formed keeps its users.
    """

    mode: Mode | str
    users: tuple[str, ...] = DEFAULT_USERS

    def __post_init__(self) -> None:
        """Raise ValueError if the mode does not exist or a name cannot be a user."""
        if self.mode not in list(Mode):
            raise ValueError(f"security {self.mode!r} is unknown; use one of {', '.join(Mode)}")
        object.__setattr__(self, "mode", Mode(self.mode))
        object.__setattr__(self, "users", tuple(self.users))
        for name in self.users:
            if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()) or name == ADMIN:
                raise ValueError(f"user {name!r}: use letters, digits, '-' and '_', and another name than {ADMIN}")
            if len(name) > NAME_CHARACTERS_MAX:
                raise ValueError(f"user {name!r}: use at most {NAME_CHARACTERS_MAX} characters")
            for other in self.users:
                if name.startswith(f"{other}-"):
                    raise ValueError(f"user {name!r}: use another name, because {other!r} may use all of its names")

    @property
    def kind(self) -> Mode:
        """Return the mode."""
        return Mode(self.mode)

    @property
    def all_users(self) -> tuple[str, ...]:
        """Return all users, the administrator first. Empty if clients do not authenticate."""
        return (ADMIN, *self.users) if self.kind.has_users else ()


@dataclass(frozen=True)
class SecurityFiles:
    """Paths of the files of a secured cluster below its directory."""

    directory: Path

    @property
    def certificates(self) -> Path:
        return self.directory / "certificates"

    @property
    def authority(self) -> Path:
        return self.certificates / "authority.pem"

    def broker(self, node_id: int) -> Path:
        return self.certificates / f"broker-{node_id}.pem"

    def user(self, name: str) -> Path:
        return self.certificates / f"user-{name}.pem"

    @property
    def passwords(self) -> Path:
        """File with the passwords of the users, as JSON."""
        return self.directory / "cluster.users"

    @property
    def scram(self) -> Path:
        """File with the first SCRAM credentials, for the brokers of a new cluster."""
        return self.directory / "cluster.scram"

    @property
    def token_key(self) -> Path:
        """File with the key of delegation tokens (delegation.token.secret.key)."""
        return self.directory / "cluster.token-key"

    def client(self, user: str | None) -> Path:
        """Return the file with client properties in Kafka's format, of a user or of all clients."""
        return self.directory / ("client.properties" if user is None else f"client-{user}.properties")


def broker_rows(
    security: Security, files: SecurityFiles, node_id: int, inter_broker_listener: str, token_key: str | None
) -> dict[str, str]:
    """Return the properties of a broker for its security, without the listeners."""
    listener, mode = security.kind.protocol, security.kind
    rows = {
        "listener.security.protocol.map": f"{listener}:{listener},{inter_broker_listener}:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.broker(node_id)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
        f"listener.name.{inter_broker_listener.lower()}.ssl.client.auth": "required",
    }
    if mode.has_users:
        rows["authorizer.class.name"] = AUTHORIZER
        rows["super.users"] = f"User:{ADMIN}"
    if mode is Mode.MTLS:
        rows["listener.name.ssl.ssl.client.auth"] = "required"
        rows["ssl.principal.mapping.rules"] = MAPPING_RULES
    elif mode is Mode.SASL_SSL:
        rows["listener.name.sasl_ssl.sasl.enabled.mechanisms"] = MECHANISMS
        rows["odradek.bootstrap.scram.file"] = str(files.scram)
        if token_key is not None:
            rows["delegation.token.secret.key"] = token_key
    return rows


def read_token_key(files: SecurityFiles) -> str | None:
    """Return the key of delegation tokens, or None if the cluster has none."""
    try:
        return files.token_key.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def read_passwords(files: SecurityFiles) -> dict[str, str]:
    """Return the passwords of the users, empty if there are none. Raise BrokerFailed if the file is damaged."""
    try:
        content = json.loads(files.passwords.read_text(encoding="utf-8"))
        return {str(name): str(password) for name, password in content.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError):
        raise BrokerFailed(f"{files.passwords} is damaged; restore it from a copy") from None


def scram_lines(passwords: Mapping[str, str]) -> str:
    """Return the file of the first SCRAM credentials, in the syntax of `kafka-storage format --add-scram`."""
    return "".join(f"{MECHANISM}=[name={name},password={password}]\n" for name, password in passwords.items())


def java_properties(
    security: Security, files: SecurityFiles, user: str | None, passwords: Mapping[str, str]
) -> dict[str, str]:
    """Return the security of a client by the properties of Kafka's Java clients, without the addresses."""
    properties = {
        "security.protocol": security.kind.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
    }
    if user is not None and security.kind is Mode.MTLS:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.user(user))}
    elif user is not None:
        properties |= {
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user}" password="{passwords[user]}";',
        }
    return properties


def client_config(
    kind: str,
    bootstrap: str,
    security: Security | None,
    files: SecurityFiles,
    user: str | None,
) -> dict[str, Any]:
    """Return the settings of a client library, by its own names. `user` None selects the administrator.

    Raise ValueError if the library or the user does not exist.
    """
    if kind not in CLIENT_KINDS:
        raise ValueError(f"client {kind!r} is unknown; use one of {', '.join(CLIENT_KINDS)}")
    users = () if security is None else security.all_users
    if user is not None and user not in users:
        raise ValueError(f"user {user!r} is unknown; the cluster has {', '.join(users) or 'no users'}")
    if users:
        user = user or ADMIN
    passwords = read_passwords(files)
    if kind in {"java", "spark"}:
        properties = {} if security is None else java_properties(security, files, user, passwords)
        prefix = "kafka." if kind == "spark" else ""
        return {f"{prefix}{name}": value for name, value in {"bootstrap.servers": bootstrap, **properties}.items()}
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
    if security is not None:
        settings |= {"security.protocol": security.kind.protocol, "ssl.ca.location": str(files.authority)}
        if user is not None and security.kind is Mode.MTLS:
            path = str(files.user(user))
            settings |= {"ssl.certificate.location": path, "ssl.key.location": path}
        elif user is not None:
            settings |= {"sasl.mechanism": MECHANISM, "sasl.username": user, "sasl.password": passwords[user]}
    if kind == "confluent":
        return settings
    settings = {PYTHON_NAMES[name]: value for name, value in settings.items()}
    return settings if kind == "kafka-python" else _with_context(settings)


PYTHON_NAMES: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
"""Names of kafka-python by those of librdkafka."""


def _with_context(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of aiokafka, which takes a TLS context instead of paths."""
    authority = settings.pop("ssl_cafile", None)
    certificate, _ = settings.pop("ssl_certfile", None), settings.pop("ssl_keyfile", None)
    if authority is not None:
        context = ssl.create_default_context(cafile=authority)
        if certificate is not None:
            context.load_cert_chain(certificate)
        settings["ssl_context"] = context
    return settings


def refuse_change(last: Security | None, requested: Security | None, path: Path) -> None:
    """Raise BrokerFailed if a formed cluster has another security than the requested one."""
    if requested is not None and requested != last:
        present = (
            "no security" if last is None else f"security {last.kind}, users {', '.join(last.all_users) or 'none'}"
        )
        raise BrokerFailed(f"{path} holds a cluster with {present}; omit the option, or choose another --dir", USAGE)
