from __future__ import annotations

from typing import Any, Literal

import pytest

from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.testing import faults as actions
from odradek.testing.api_names import ANY_API, api_key, error_code
from odradek.testing.faults import Faults, Injection, Match, Rule, Watched
from odradek.testing.rules import Action, Request

END_TXN = Request(1, "EndTxn", client_id="shop", transactional_ids=("a",))


class Brokers:
    """In-memory brokers: the APIs that they watch."""

    def __init__(self) -> None:
        self.watched: Watched = []
        self.faults = Faults(self.publish)

    def publish(self, watched: Watched) -> None:
        self.watched = watched

    def receive(self, request: Request) -> Action | None:
        rule = self.faults.rule_for(request)
        action = None if rule is None else rule.effect(request)
        if rule is not None and action is not None:
            self.faults.note(rule, Injection(request, action))
        return action


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
    rule = brokers.faults.on("EndTxn").delay(1)
    with pytest.raises(TimeoutError, match=r"1 faults on .*EndTxn"):
        rule.wait(timeout_s=0.01)
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
        ({"api": "EndTxn", "nth": 0}, "begin at 1"),
        ({"api": "EndTxn", "times": 0}, "begin at 1"),
    ],
)
def test_invalid_selection_is_refused(brokers: Brokers, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        brokers.faults.on(**arguments)


def test_invalid_effects_are_refused(brokers: Brokers) -> None:
    match: Match = brokers.faults.on("EndTxn")
    with pytest.raises(ValueError, match="did you mean NOT_COORDINATOR"):
        match.error("NOT_COORDINATR")
    during: Any = "during"
    with pytest.raises(ValueError, match="use 'before' or 'after'"):
        match.disconnect(during)
    assert brokers.watched == []


def test_names_of_kafka() -> None:
    name: Literal["EndTxn"] = "EndTxn"
    assert api_key(name) == 26
    assert api_key("ListOffsets") == 2
    assert error_code("COORDINATOR_NOT_AVAILABLE") == 15
