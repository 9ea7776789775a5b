from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

import pytest

from odradek.broker.dispatch.table import API_TABLE
from odradek.protocol.messages import APIS
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.testing import faults as actions
from odradek.testing.api_names import ANY_API, NOT_SERVED, api_key, error_code
from odradek.testing.faults import Faults, Match, Watched
from odradek.testing.rules import Action, Request

if TYPE_CHECKING:
    from odradek.testing.injected_rules import Rule

END_TXN = Request(1, "EndTxn", client_id="shop", transactional_ids=("a",))


class Brokers:
    """In-memory brokers: the APIs that they watch."""

    def __init__(self) -> None:
        self.watched: Watched = []
        self.faults = Faults(self.publish, 3)

    def publish(self, watched: Watched) -> None:
        self.watched = watched

    def receive(self, request: Request) -> Action | None:
        return asyncio.run(self.faults.decide(request, self.faults.taking(request)))


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_rule_has_effect_from_its_creation_to_its_end(brokers: Brokers) -> None:
    with brokers.faults.on("EndTxn").error("NOT_COORDINATOR") as rule:
        assert brokers.watched == [(EndTxnRequest.API_KEY, False)]
        assert brokers.receive(END_TXN) == Action("error", code=16)
    assert rule.injected == 1
    assert brokers.watched == []
    assert brokers.receive(END_TXN) is None


@pytest.mark.parametrize(
    ("add", "action"),
    [
        (lambda match: match.error("UNKNOWN_SERVER_ERROR", executed=True), Action("error", code=-1, executed=True)),
        (lambda match: match.delay(250), Action("delay", ms=250)),
        (lambda match: match.disconnect("before"), Action("disconnect_before")),
        (lambda match: match.disconnect(), Action("disconnect_after")),
        (lambda match: match.drop_request(), Action("drop_request")),
        (lambda match: match.drop_response(), Action("drop_response")),
        (lambda match: match.call(lambda request: actions.delay(request.broker)), Action("delay", ms=1)),
        (lambda match: match.call(lambda _: actions.drop_response()), Action("drop_response")),
        (lambda match: match.call(lambda _: None), None),
    ],
)
def test_effect_is_the_action_of_the_broker(brokers: Brokers, add: Any, action: Action | None) -> None:
    rule: Rule = add(brokers.faults.on("EndTxn"))
    assert brokers.receive(END_TXN) == action
    assert rule.injected == len(brokers.faults.log) == (action is not None)


def test_nth_alone_selects_one_request(brokers: Brokers) -> None:
    brokers.faults.on("EndTxn", nth=2).delay(1)
    assert [brokers.receive(END_TXN) is not None for _ in range(3)] == [False, True, False]


def test_wait_returns_when_the_fault_is_injected_and_raises_if_it_is_not(brokers: Brokers) -> None:
    rule = brokers.faults.on("EndTxn", nth=2, transactional_id="a", when=lambda _: True).delay(1)
    brokers.receive(END_TXN)
    with pytest.raises(TimeoutError) as raised:
        rule.wait(timeout_s=0.01)
    expected = "1 injected fault on EndTxn (transactional_id='a', when=...); 1 request matched the rule"
    assert str(raised.value) == f"waited 0.01 s for {expected}"
    brokers.receive(END_TXN)
    rule.wait()


def test_log_names_broker_api_client_and_action(brokers: Brokers) -> None:
    brokers.faults.on("EndTxn").drop_response()
    brokers.receive(END_TXN)
    brokers.faults.remove_rules()
    assert brokers.receive(END_TXN) is None
    assert [str(each) for each in brokers.faults.log] == ["broker 1: EndTxn of 'shop' (a): drop_response"]
    brokers.faults.on("EndTxn").delay(1)
    brokers.faults.clear()
    assert brokers.faults.log == []
    assert brokers.watched == []


def test_rule_for_all_apis_and_for_requests_of_brokers(brokers: Brokers) -> None:
    brokers.faults.on(client_id="shop").drop_request()
    brokers.faults.on("Fetch", sender="broker").delay(10)
    assert brokers.watched == [(ANY_API, False), (FetchRequest.API_KEY, True)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"api": "EndTransaction"}, "'EndTransaction' does not exist; did you mean"),
        ({"api": "EndTxn", "sender": "me"}, "use one of client, broker"),
        ({"api": "END_TXN"}, r"did you mean EndTxn\b"),
        ({"api": "produce"}, r"did you mean Produce\b"),
        ({"api": "ShareFetch"}, r"API 'ShareFetch' is not served by the brokers .*, so no request matches"),
        ({"api": "share_fetch"}, r"did you mean (?!ShareFetch)"),
        ({"api": "EndTxn", "nth": 0}, "nth=0: use a whole number from 1 on"),
        ({"api": "EndTxn", "nth": "3"}, "nth='3': use a whole number from 1 on"),
        ({"api": "EndTxn", "times": 0}, "times=0: use a whole number from 1 on"),
        ({"api": "Fetch", "partition": -1}, "partition=-1: use a whole number from 0 on"),
        ({"api": "Fetch", "broker": 4}, "broker=4: use the node id of a broker, from 1 to 3"),
        ({"api": "Fetch", "broker": 0}, "broker=0: use the node id of a broker"),
        ({"api": 26}, "API 26 is no name; use a text such as 'EndTxn'"),
        ({"api": "EndTxn", "nth": True}, "nth=True: use a whole number from 1 on"),
        ({"api": "EndTxn", "client_id": 7}, "client_id=7: use a text"),
        (
            {"api": "EndTxn", "topic": "orders"},
            "topic: a request EndTxn contains no topics, so it never matches; select by transactional_id",
        ),
        ({"api": "OffsetCommit", "transactional_id": "x"}, "select by topic or partition or group"),
        ({"api": "DeleteGroups", "partition": 0}, "partition: a request DeleteGroups contains no topics"),
        ({"api": "ApiVersions", "group": "g"}, "contains no groups, so it never matches; select by client_id"),
        ({"api": "EndTxn", "when": True}, "when=True: use a function of one argument"),
        ({"api": "EndTxn", "probability": 1.5}, r"probability=1\.5: use a number from 0 to 1"),
        ({"api": "EndTxn", "probability": -0.1}, "use a number from 0 to 1"),
    ],
)
def test_invalid_selection_is_refused(brokers: Brokers, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        brokers.faults.on(**arguments)


def test_invalid_effects_are_refused(brokers: Brokers) -> None:
    match: Match = brokers.faults.on("EndTxn")
    with pytest.raises(ValueError, match="did you mean NOT_COORDINATOR"):
        match.error("NOT_COORDINATR")
    for name in ("not_leader_or_follower", "NotLeaderOrFollower"):
        with pytest.raises(ValueError, match="did you mean NOT_LEADER_OR_FOLLOWER"):
            match.error(name)
    no_errors: list[Any] = ["NONE", 15]
    for number in no_errors:
        with pytest.raises(ValueError, match=f"error {number!r} is no name of an error; use a text"):
            match.error(number)
    no_function: Any = "fail"
    for effect in (match.call, match.rewrite):
        with pytest.raises(ValueError, match="function='fail': use a function of one argument"):
            effect(no_function)
    during: Any = "during"
    with pytest.raises(ValueError, match="use 'before' or 'after'"):
        match.disconnect(during)
    wrong: list[Any] = [-1, float("nan"), float("inf"), "100"]
    for ms in wrong:
        with pytest.raises(ValueError, match=f"ms={ms!r}: use a number of milliseconds"):
            match.delay(ms)
    with pytest.raises(ValueError, match="a response of EndTxn is EndTxnResponse, not EndTxnRequest"):
        match.respond(EndTxnRequest())
    assert brokers.watched == []


def test_function_that_returns_no_effect_is_named(brokers: Brokers) -> None:
    wrong: Any = "NOT_COORDINATOR"
    brokers.faults.on("EndTxn").call(lambda _: wrong)
    with pytest.raises(TypeError, match="it returned 'NOT_COORDINATOR'; return an effect"):
        brokers.receive(END_TXN)


def test_observation_counts_requests_and_leaves_the_decision_to_later_rules(brokers: Brokers) -> None:
    seen = brokers.faults.on("EndTxn", times=2).observe()
    fault = brokers.faults.on("EndTxn", nth=3).delay(1)
    assert [brokers.receive(END_TXN) is not None for _ in range(4)] == [False, False, True, False]
    assert (seen.seen, seen.matched, list(seen.requests)) == (2, 4, [END_TXN] * 2)
    assert (fault.injected, fault.matched) == (1, 4)
    seen.wait(2)
    with pytest.raises(TimeoutError, match="3 observed requests on EndTxn; 4 requests matched the rule"):
        seen.wait(3, timeout_s=0.01)
    assert [each.request for each in brokers.faults.log] == [END_TXN]


def test_function_without_an_action_leaves_the_decision_to_the_next_rule(brokers: Brokers) -> None:
    called: list[Request] = []
    brokers.faults.on("EndTxn").call(called.append)
    brokers.faults.on("EndTxn").drop_response()
    assert brokers.receive(END_TXN) == Action("drop_response")
    assert called == [END_TXN]


def test_function_removes_its_rule_and_adds_another(brokers: Brokers) -> None:
    def once(_request: Request) -> None:
        rule.remove()
        brokers.faults.on("EndTxn").delay(1)

    rule = brokers.faults.on("EndTxn").call(once)
    assert brokers.receive(END_TXN) is None
    assert brokers.receive(END_TXN) == Action("delay", ms=1)


@pytest.mark.parametrize("release", ["release", "remove", "until", "clear"])
def test_held_request_waits_for_its_release(brokers: Brokers, release: str) -> None:
    seen = brokers.faults.on("Fetch").observe()
    hold = brokers.faults.on("EndTxn").hold(until=seen)
    with ThreadPoolExecutor(1) as executor:
        held = executor.submit(brokers.receive, END_TXN)
        hold.wait()
        assert not held.done()
        {
            "release": hold.release,
            "remove": hold.remove,
            "until": lambda: brokers.receive(Request(1, "Fetch")),
            "clear": brokers.faults.remove_rules,
        }[release]()
        assert held.result(10) is None
    assert brokers.receive(END_TXN) is None
    assert [str(each) for each in brokers.faults.log] == ["broker 1: EndTxn of 'shop' (a): hold"]


def test_end_of_the_rules_abandons_functions_that_wait(brokers: Brokers) -> None:
    began, end = Event(), Event()

    def wait(_request: Request) -> Action:
        began.set()
        end.wait(30)
        return actions.drop_response()

    brokers.faults.on("EndTxn").call(wait)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(brokers.receive, END_TXN)
        assert began.wait(10)
        brokers.faults.remove_rules()
        assert waiting.result(10) is None
    end.set()
    assert brokers.faults.log == []


def test_names_of_kafka() -> None:
    name: Literal["EndTxn"] = "EndTxn"
    assert api_key(name) == 26
    assert api_key("ListOffsets") == 2
    assert error_code("COORDINATOR_NOT_AVAILABLE") == 15


def test_rules_select_each_api_that_brokers_serve_and_no_other() -> None:
    served = {api.name for api in API_TABLE}
    assert {name for _, name, _ in APIS.values()} - served == NOT_SERVED
    assert {name: api_key(name) for name in served} == {api.name: api.key for api in API_TABLE}
