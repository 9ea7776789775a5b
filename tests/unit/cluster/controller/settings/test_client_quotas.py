"""AlterClientQuotas: decisions of the controller."""

from __future__ import annotations

import pytest

from odradek.cluster.controller.commands import AlterClientQuotas
from odradek.cluster.controller.messages.settings import QuotaChange, QuotaResult
from odradek.protocol.errors import ErrorCode
from tests.support.raft_memory import ControllerRig

E = ErrorCode
Named = tuple[str, str | None]


def alter(rig: ControllerRig, *entity: Named, **changes: float | None) -> tuple[ErrorCode, str | None]:
    (result,) = rig.do(AlterClientQuotas((QuotaChange(entity, tuple(changes.items())),)))
    assert result.entity == entity
    return result.error, result.message


def test_quotas_are_set_changed_and_removed() -> None:
    rig = ControllerRig().with_brokers(1)
    assert alter(rig, ("user", "u"), ("client-id", None), producer_byte_rate=5.0, request_percentage=0.5) == (
        E.NONE,
        None,
    )
    alter(rig, ("client-id", None), ("user", "u"), producer_byte_rate=6.0)
    alter(rig, ("ip", "127.0.0.1"), connection_creation_rate=7.0)
    image = rig.core.state.image
    assert image.client_quotas == {
        (("client-id", None), ("user", "u")): {"producer_byte_rate": 6.0, "request_percentage": 0.5},
        (("ip", "127.0.0.1"),): {"connection_creation_rate": 7.0},
    }
    before = len(rig.log)
    alter(rig, ("user", "u"), ("client-id", None), producer_byte_rate=6.0, consumer_byte_rate=None)
    alter(rig, ("user", "without-quota"), producer_byte_rate=None)
    assert len(rig.log) == before, "no record without a change"
    alter(rig, ("ip", "127.0.0.1"), connection_creation_rate=None)
    assert list(rig.core.state.image.client_quotas) == [(("client-id", None), ("user", "u"))]


def test_validate_only_checks_and_writes_no_record() -> None:
    rig = ControllerRig().with_brokers(1)
    for value, error in ((5.0, E.NONE), (-5.0, E.INVALID_REQUEST)):
        change = QuotaChange((("user", "u"),), (("producer_byte_rate", value),))
        (result,) = rig.do(AlterClientQuotas((change,), validate_only=True))
        assert result.error is error
    assert rig.core.state.image.client_quotas == {}


@pytest.mark.parametrize(
    ("entity", "changes", "message"),
    [
        ((), {}, "Invalid empty client quota entity"),
        ((("user", ""),), {}, "Empty user not supported"),
        ((("group", "g"),), {}, "Unhandled client quota entity type: group"),
        ((("user", "u"), ("user", None)), {}, "Invalid client quota entity, duplicate entity entry user"),
        (
            (("ip", "127.0.0.1"), ("user", "u")),
            {},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ((("ip", "no address"),), {}, "no address is not a valid IP or resolvable host."),
        ((("ip", None),), {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ((("user", "u"),), {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ((("user", "u"),), {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        ((("user", "u"),), {"producer_byte_rate": float("nan")}, "Quota producer_byte_rate must be greater than 0"),
        ((("user", "u"),), {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            (("user", "u"),),
            {"producer_byte_rate": 1e19},
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            (("ip", None),),
            {"connection_creation_rate": 3e9},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_invalid_quota_is_refused(entity: tuple[Named, ...], changes: dict[str, float | None], message: str) -> None:
    rig = ControllerRig().with_brokers(1)
    before = len(rig.log)
    assert alter(rig, *entity, **changes) == (E.INVALID_REQUEST, message)
    assert len(rig.log) == before


def test_duplicate_entity_is_refused_and_other_entities_are_changed() -> None:
    rig = ControllerRig().with_brokers(1)
    first = QuotaChange((("user", "u"), ("client-id", "c")), (("producer_byte_rate", 1.0),))
    duplicate_entity = QuotaChange((("client-id", "c"), ("user", "u")), (("producer_byte_rate", 2.0),))
    duplicate_key = QuotaChange((("user", "v"),), (("producer_byte_rate", 2.0), ("producer_byte_rate", 3.0)))
    results: tuple[QuotaResult, ...] = rig.do(AlterClientQuotas((first, duplicate_entity, duplicate_key)))
    assert [result.error for result in results] == [E.NONE, E.INVALID_REQUEST, E.INVALID_REQUEST]
    assert list(rig.core.state.image.client_quotas.values()) == [{"producer_byte_rate": 1.0}]
