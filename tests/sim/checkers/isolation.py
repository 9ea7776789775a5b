"""I19: a tenant learns nothing of other tenants, and changes nothing of them, whatever it sends."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.sim.checkers.metadata_log import QUOTA, REMOVE_SCRAM, SCRAM, Setting

if TYPE_CHECKING:
    from tests.sim.checkers.evidence import Evidence

MARK: Final = b"mallory"
"""Beginning of all records that the hostile tenant writes."""
TRANSIENT: Final = (7, 14, 15, 16, 41)
"""Errors without an authorization: a controller or a coordinator does not respond now."""


@dataclass(slots=True)
class Intrusion:
    """One request of the hostile tenant that a broker must refuse, and its response."""

    what: str
    broker: str
    expected: tuple[int, ...] | None
    """Errors of which the response must have one, and no other one; None if an error is not required."""
    errors: tuple[int, ...] = ()
    """All error codes of the response, without 0."""
    leaked: tuple[str, ...] = ()
    """Names, ids and records of other tenants in the response that were not in the request."""
    errors_of_missing: tuple[int, ...] | None = None
    """Errors of the same request with a name that does not exist; None if the request was not repeated."""
    carried_out: bool = False
    """True if the broker served a request or a login that has no response with errors."""


@dataclass
class TenantEvidence:
    """Requests of the hostile tenant, and offsets of a group of another tenant."""

    intrusions: list[Intrusion] = field(default_factory=list)
    sent: dict[int, None] = field(default_factory=dict)
    """All offsets that the owner of the group has sent in commits."""
    unresolved: dict[int, None] = field(default_factory=dict)
    """Offsets of commits without a response. Such a commit may take effect after a later one."""
    is_committed: bool = False
    fetched: list[int] = field(default_factory=list)
    """Offsets that the owner received, from its first acknowledged commit on."""
    offsets_expire: bool = False
    set_up_to: int = 0
    """Offset of the metadata log at which all topics and users of the tenants exist."""
    settings: list[Setting] = field(default_factory=list)
    """Records of topics, configurations, users and quotas in the metadata log."""
    topics: tuple[str, ...] = ()
    """Topics that no client changes after `set_up_to`."""


def check_isolation(evidence: "Evidence") -> Iterator[str]:
    """I19: each request of the hostile tenant has the error that the ACLs demand, and reveals and changes nothing."""
    tenants = evidence.tenants
    if tenants is None:
        return
    yield from tenant_findings(tenants)
    for partition, model in evidence.partitions.items():
        for slot in model.slots.values():
            if slot.value.startswith(MARK):
                yield f"I19 {partition} has a record of another tenant at {slot.offset}"


def tenant_findings(tenants: TenantEvidence) -> Iterator[str]:
    """Yield a finding for each violation of I19 that the clients of the tenants have seen."""
    for intrusion in tenants.intrusions:
        yield from _problems(intrusion)
    yield from _settings_of_others(tenants)
    for offset in tenants.fetched:
        if offset not in tenants.sent and not (offset < 0 and tenants.offsets_expire):
            yield f"I19 a group has the offset {offset}, which its only tenant has not committed"


def _settings_of_others(tenants: TenantEvidence) -> Iterator[str]:
    for setting in tenants.settings:
        of_topic = setting.kind not in {SCRAM, REMOVE_SCRAM, QUOTA}
        is_kept = not of_topic or setting.name in tenants.topics or setting.name.isdecimal() or not setting.name
        if setting.offset > tenants.set_up_to and is_kept:
            yield f"I19 the metadata log has at {setting.offset} a change that no other tenant has requested: {setting}"


def _problems(intrusion: Intrusion) -> Iterator[str]:
    where = f"I19 {intrusion.broker}: {intrusion.what} of a hostile tenant"
    if intrusion.carried_out:
        yield f"{where} was carried out"
    if intrusion.leaked:
        yield f"{where}: the response contains {', '.join(intrusion.leaked[:3])}"
    if any(error in TRANSIENT for error in intrusion.errors):
        return
    missing = intrusion.errors_of_missing
    if missing is not None and missing != intrusion.errors and not any(error in TRANSIENT for error in missing):
        yield f"{where}: the response shows whether the name exists"
    if intrusion.expected is None:
        return
    if not intrusion.errors:
        yield f"{where} has no error instead of {intrusion.expected}"
    elif any(error not in intrusion.expected for error in intrusion.errors):
        yield f"{where} has the errors {intrusion.errors} instead of {intrusion.expected}"
