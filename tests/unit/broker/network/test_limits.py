"""Connection limits: counts and creation rates per address and in total, and the limit of log entries."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from odradek.broker.config.topics import TopicSettings
from odradek.broker.network.limits import OPEN_FILES, PROTECTED_EXTRA, ConnectionLimits, LogLimit
from odradek.broker.process.open_files import CONNECTIONS_MIN, RESERVED_MIN, OpenFileLimit
from tests.support.broker_context import config
from tests.support.quotas import Unlimited

if TYPE_CHECKING:
    from odradek.broker.quota.client_quotas import ClientQuotas


def test_connections_are_limited_per_address_and_in_total() -> None:
    limits = ConnectionLimits(TopicSettings(config("max.connections=3", "max.connections.per.ip=2")), Unlimited())
    assert [limits.admit(ip) for ip in ("a", "a", "a", "b", "b")] == [
        None,
        None,
        "max.connections.per.ip",
        None,
        "max.connections",
    ]
    limits.leave("a")
    assert limits.admit("b") is None
    assert limits.total == 3


def test_connections_leave_descriptors_to_logs() -> None:
    files = 10
    limit = OpenFileLimit(256, lambda: files, backlog=50)
    limits = ConnectionLimits(TopicSettings(config()), Unlimited(), limit.connections_max)
    free = 256 - RESERVED_MIN - 50 - files
    assert [limits.admit("a") for _ in range(free)] == [None] * free
    assert limits.admit("a") == OPEN_FILES
    assert limits.admit("a", evict=lambda: True) is None, "the evicted connection ends later"
    assert [limits.admit("a", protected=True) for _ in range(PROTECTED_EXTRA)] == [None] * (PROTECTED_EXTRA - 1) + [
        OPEN_FILES
    ]
    files += 10_000
    assert limit.connections_max() == CONNECTIONS_MIN
    assert OpenFileLimit(100_000, lambda: 0, backlog=50).connections_max() == 75_000 - 50


def test_connections_above_the_creation_rate_are_delayed() -> None:
    limits = ConnectionLimits(TopicSettings(config("max.connection.creation.rate=10")), Unlimited())
    delays = [limits.delay_s("a", 100.0) for _ in range(12)]
    assert delays[:10] == [0.0] * 10
    assert [round(delay, 3) for delay in delays[10:]] == [0.1, 0.2]
    assert limits.delay_s("a", 102.0) == 0.0


def test_protected_listener_applies_only_the_limit_per_address() -> None:
    limits = ConnectionLimits(TopicSettings(config("max.connections=2", "max.connections.per.ip=3")), Unlimited())
    assert [limits.admit("a"), limits.admit("a"), limits.admit("a")] == [None, None, "max.connections"]
    assert [limits.admit("b", protected=True) for _ in range(4)] == [None, None, None, "max.connections.per.ip"]
    limits.leave("a")
    assert limits.total == 4
    assert limits.admit("c") == "max.connections", "connections of brokers count, too"


def test_protected_listener_applies_only_the_creation_rate_per_address() -> None:
    rates = SimpleNamespace(connection_rate={"quick": None, "slow": 4.0}.get)
    limits = ConnectionLimits(TopicSettings(config("max.connection.creation.rate=1")), cast("ClientQuotas", rates))
    assert [limits.delay_s("quick", 100.0) for _ in range(3)] == [0.0, 1.0, 2.0]
    assert [limits.delay_s("quick", 100.0, protected=True) for _ in range(3)] == [0.0] * 3
    assert [limits.delay_s("slow", 100.0, protected=True) for _ in range(5)] == [0.0] * 4 + [0.25]
    assert limits.delay_s("quick", 100.0) == 3.0, "connections of brokers do not delay clients"


def test_log_limit_admits_entries_per_second_and_counts_the_others() -> None:
    limit = LogLimit(2)
    assert [limit.admit(10.0), limit.admit(10.1), limit.admit(10.2), limit.admit(10.9)] == [0, 0, None, None]
    assert [limit.admit(11.0), limit.admit(11.0), limit.admit(11.0)] == [2, 0, None]


def test_changed_limit_applies_to_later_connections() -> None:
    values: dict[str, int | str] = {
        "max.connections": 1,
        "max.connections.per.ip": 1,
        "max.connection.creation.rate": 1,
    }
    values["max.connections.per.ip.overrides"] = ""
    limits = ConnectionLimits(
        cast("TopicSettings", SimpleNamespace(current=lambda prop: values[prop.name])), Unlimited()
    )
    assert [limits.admit("a"), limits.admit("a")] == [None, "max.connections"]
    values |= {"max.connections": 3}
    assert [limits.admit("a"), limits.admit("b")] == ["max.connections.per.ip", None]
    assert [limits.delay_s("a", 100.0), limits.delay_s("a", 100.0)] == [0.0, 1.0]
    values |= {"max.connection.creation.rate": 10}
    assert round(limits.delay_s("a", 100.0), 3) == 1.1
