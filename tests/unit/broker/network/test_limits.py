import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from odradek.broker.config.topics import TopicSettings
from odradek.broker.network.limits import ConnectionLimits, LogLimit
from odradek.broker.quota.byte_budget import ByteBudget
from tests.support.broker_context import config
from tests.support.quotas import Unlimited

if TYPE_CHECKING:
    from odradek.broker.quota.client_quotas import ClientQuotas


class Reader:
    def __init__(self, budget: ByteBudget, log: list[str], name: str) -> None:
        self.budget, self.log, self.name = budget, log, name
        self.held_bytes = 0

    def may_read(self) -> bool:
        return self.budget.may_read(self, self.held_bytes, lambda: self.log.append(self.name))


def test_readers_go_on_in_the_order_in_which_they_stopped() -> None:
    budget, log = ByteBudget(100), list[str]()
    a, b, c = (Reader(budget, log, name) for name in "abc")
    budget.reserve(100)
    assert c.may_read(), "the first one is favored"
    assert not b.may_read()
    assert not a.may_read()
    assert not b.may_read()
    budget.release(1)
    assert log == ["b", "a"]


def test_who_holds_next_to_nothing_is_read_however_full_the_budget_is() -> None:
    budget, log = ByteBudget(512 * 1024 * 1024), list[str]()
    hog, neighbor, innocent = (Reader(budget, log, name) for name in ("hog", "neighbor", "innocent"))
    budget.reserve(600 * 1024 * 1024)
    hog.held_bytes = neighbor.held_bytes = 64 * 1024
    innocent.held_bytes = 64 * 1024 - 1
    assert hog.may_read(), "the first one is favored"
    assert not neighbor.may_read()
    assert innocent.may_read()


def test_answers_of_readers_that_never_take_them_do_not_fill_the_budget() -> None:
    budget = ByteBudget(512 * 1024 * 1024)
    rooms = []
    for _ in range(1_000):
        rooms.append(budget.response_capacity())
        budget.reserve(rooms[-1])
    assert rooms[0] == 64 * 1024 * 1024
    assert all(later <= earlier for earlier, later in itertools.pairwise(rooms))
    assert budget.used_bytes <= budget.limit_bytes
    budget.reserve(budget.limit_bytes)
    assert budget.response_capacity() == 0


def test_past_the_budget_one_reader_at_a_time_goes_on_until_it_is_answered() -> None:
    budget, log = ByteBudget(100), list[str]()
    a, b = Reader(budget, log, "a"), Reader(budget, log, "b")
    budget.reserve(100)
    assert a.may_read()
    assert not b.may_read()
    assert a.may_read(), "until its request is whole"
    budget.request_started(a)
    assert not a.may_read(), "then not"
    assert log == []
    budget.request_completed(a)
    assert log == ["b"], "and after its answer it is the turn of the next"
    assert b.may_read()
    assert not a.may_read()


def test_answers_to_earlier_requests_do_not_use_up_the_favor() -> None:
    budget, log = ByteBudget(100), list[str]()
    a, b = Reader(budget, log, "a"), Reader(budget, log, "b")
    budget.reserve(100)
    assert a.may_read()
    assert not b.may_read()
    budget.request_completed(a)
    assert log == []
    assert a.may_read()


def test_a_reader_that_leaves_hands_its_turn_on() -> None:
    budget, log = ByteBudget(100), list[str]()
    a, b = Reader(budget, log, "a"), Reader(budget, log, "b")
    budget.reserve(100)
    assert a.may_read()
    assert not b.may_read()
    budget.remove(a)
    assert log == ["b"]


def test_connections_are_counted_by_address_and_in_total() -> None:
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


def test_new_connections_are_spaced_once_a_seconds_worth_has_come() -> None:
    limits = ConnectionLimits(TopicSettings(config("max.connection.creation.rate=10")), Unlimited())
    delays = [limits.delay_s("a", 100.0) for _ in range(12)]
    assert delays[:10] == [0.0] * 10
    assert [round(delay, 3) for delay in delays[10:]] == [0.1, 0.2]
    assert limits.delay_s("a", 102.0) == 0.0


def test_on_a_protected_listener_connections_count_but_only_what_holds_for_their_address_stops_them() -> None:
    limits = ConnectionLimits(TopicSettings(config("max.connections=2", "max.connections.per.ip=3")), Unlimited())
    assert [limits.admit("a"), limits.admit("a"), limits.admit("a")] == [None, None, "max.connections"]
    assert [limits.admit("b", protected=True) for _ in range(4)] == [None, None, None, "max.connections.per.ip"]
    limits.leave("a")
    assert limits.total == 4
    assert limits.admit("c") == "max.connections", "what brokers hold counts"


def test_on_a_protected_listener_new_connections_wait_for_the_rate_of_their_address_alone() -> None:
    rates = SimpleNamespace(connection_rate={"quick": None, "slow": 4.0}.get)
    limits = ConnectionLimits(TopicSettings(config("max.connection.creation.rate=1")), cast("ClientQuotas", rates))
    assert [limits.delay_s("quick", 100.0) for _ in range(3)] == [0.0, 1.0, 2.0]
    assert [limits.delay_s("quick", 100.0, protected=True) for _ in range(3)] == [0.0] * 3
    assert [limits.delay_s("slow", 100.0, protected=True) for _ in range(5)] == [0.0] * 4 + [0.25]
    assert limits.delay_s("quick", 100.0) == 3.0, "clients do not wait for what brokers have opened"


def test_complaints_are_limited_by_the_second_and_what_is_left_out_is_counted() -> None:
    limit = LogLimit(2)
    assert [limit.admit(10.0), limit.admit(10.1), limit.admit(10.2), limit.admit(10.9)] == [0, 0, None, None]
    assert [limit.admit(11.0), limit.admit(11.0), limit.admit(11.0)] == [2, 0, None]


def test_limits_that_change_hold_for_connections_that_come_after_that() -> None:
    values = {"max.connections": 1, "max.connections.per.ip": 1, "max.connection.creation.rate": 1}
    limits = ConnectionLimits(
        cast("TopicSettings", SimpleNamespace(current=lambda prop: values[prop.name])), Unlimited()
    )
    assert [limits.admit("a"), limits.admit("a")] == [None, "max.connections"]
    values |= {"max.connections": 3}
    assert [limits.admit("a"), limits.admit("b")] == ["max.connections.per.ip", None]
    assert [limits.delay_s("a", 100.0), limits.delay_s("a", 100.0)] == [0.0, 1.0]
    values |= {"max.connection.creation.rate": 10}
    assert round(limits.delay_s("a", 100.0), 3) == 1.1
