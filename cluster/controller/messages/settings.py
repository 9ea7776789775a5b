"""Requests and results for settings: configurations, client quotas, feature levels, ACLs, SCRAM credentials."""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode


class ConfigOperation(IntEnum):
    """The operation on one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@frozen_dataclass(frozen=True, slots=True)
class ConfigChange:
    """Changes of the settings of one resource, each as (name, operation, value).

    `kind` and `name` identify the resource: 2 and the topic; 4 and the broker id; 4 and "" for all brokers; 32 and the
    group.
    `replaces`: settings that the request does not name are removed (AlterConfigs).
    """

    kind: int
    name: str
    changes: tuple[tuple[str, ConfigOperation, str | None], ...]
    replaces: bool = False


@frozen_dataclass(frozen=True, slots=True)
class ConfigResult:
    """The result for one resource."""

    kind: int
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@frozen_dataclass(frozen=True, slots=True)
class QuotaChange:
    """Changes of the quotas of one entity (KIP-546).

    `entity`: (type, name) pairs in the order of the request. `changes`: (quota, value); the value None removes the
    quota.
    """

    entity: tuple[tuple[str, str | None], ...]
    changes: tuple[tuple[str, float | None], ...]


@frozen_dataclass(frozen=True, slots=True)
class QuotaResult:
    """The result for one entity."""

    entity: tuple[tuple[str, str | None], ...]
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@frozen_dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """One feature of UpdateFeatures. Level 0 disables the feature. A lower level requires `allow_downgrade`.

    With `unsafe`, the downgrade may lose metadata.
    """

    name: str
    max_level: int
    allow_downgrade: bool = False
    unsafe: bool = False


@frozen_dataclass(frozen=True, slots=True)
class FeatureResult:
    """The result for one feature."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@frozen_dataclass(frozen=True, slots=True)
class NewAcl:
    """An ACL that CreateAcls requests, with the codes of the request. The controller validates them."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


@frozen_dataclass(frozen=True, slots=True)
class AclResult:
    """The result for one ACL of CreateAcls."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@frozen_dataclass(frozen=True, slots=True)
class NewScramCredential:
    """A SCRAM credential that a client has derived from a password (KIP-554)."""

    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@frozen_dataclass(frozen=True, slots=True)
class ScramChange:
    """Change of the credential of a user for one mechanism, which has Kafka's code. `new` None: remove it."""

    user: str
    mechanism: int
    new: NewScramCredential | None = None


@frozen_dataclass(frozen=True, slots=True)
class ScramResult:
    """The result for one user."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
