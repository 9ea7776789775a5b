"""Fault injection as tests see it: rules, their effects, and the log of injected faults."""

from __future__ import annotations

from threading import Condition as Monitor
from typing import TYPE_CHECKING, Literal, TypeVar

from odradek.protocol.messages import response_class
from odradek.testing.api_names import api_key, check_selection, error_code
from odradek.testing.function_calls import FunctionCalls
from odradek.testing.injected_rules import ActionRule, FunctionRule, Hold, Injection, Observation, Rule
from odradek.testing.numbers import is_finite, is_whole, milliseconds
from odradek.testing.plan import DURATION_S, FaultPlan
from odradek.testing.rules import ANY, BROKER, SENDERS, Action, Entry, RuleTable, Schedule, Selector

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.schema import Message
    from odradek.testing.rules import Request

Watched = list[tuple[int, bool]]
"""API key and True for requests of brokers, for each pair that rules concern."""
R = TypeVar("R", bound=Rule)
M = TypeVar("M", bound="Message")


def _require_function(name: str, function: object) -> None:
    if not callable(function):
        raise ValueError(f"{name}={function!r}: use a function of one argument")  # noqa: TRY004  the documented error


class Match:
    """Requests that a rule concerns. Each method adds a rule with one effect, which begins before it returns."""

    def __init__(self, faults: Faults, selector: Selector, schedule: Schedule) -> None:
        self._faults = faults
        self._selector = selector
        self._schedule = schedule

    def error(self, name: str, *, executed: bool = False) -> Rule:
        """Respond with an error code by its name. With `executed`, the broker handles the request before."""
        return self._always(error(name, executed=executed))

    def delay(self, ms: float) -> Rule:
        """Handle the request after `ms` milliseconds. Later requests of the connection wait, too."""
        return self._always(delay(ms))

    def disconnect(self, when: Literal["before", "after"] = "after") -> Rule:
        """Close the connection, before the request is handled, or after it in place of the response."""
        return self._always(disconnect(when))

    def drop_request(self) -> Rule:
        """Do not handle the request, and send no response, until the client closes the connection."""
        return self._always(drop_request())

    def drop_response(self) -> Rule:
        """Handle the request, and send no response, until the client closes the connection."""
        return self._always(drop_response())

    def respond(self, response: Message) -> Rule:
        """Do not handle the request, and send this message of `odradek.protocol.messages`.

        Raise ValueError if it is no response of the selected API.
        """
        api = self._selector.api
        if api != ANY and not isinstance(response, response_class(api_key(api))):
            raise ValueError(f"a response of {api} is {api}Response, not {type(response).__name__}")
        return self._always(respond(response))

    def rewrite(self, function: Callable[[M], Message]) -> Rule:
        """Handle the request, and send what `function` returns for the response of the broker.

        The function may change the message and return it. Responses over 4 MiB are sent unchanged.
        """
        _require_function("function", function)
        return self._always(rewrite(function))

    def call(self, function: Callable[[Request], Action | None]) -> Rule:
        """Call `function` in a thread of the test process. Its result is the action; None: the next rule decides.

        The request waits for the result. The functions of this module, such as `error` and `delay`, make actions.
        The function may add and remove rules. What it raises fails the test, and the request is handled.
        """
        _require_function("function", function)
        return self._faults.add(FunctionRule(self._faults, self._entry(), function))

    def hold(self, *, until: Observation | None = None) -> Hold:
        """Hold requests until `release`, until the end of the rule, or until a request of an observation is seen.

        Later requests of the connection wait, too. Then later rules decide, or the broker handles the request.
        """
        hold = Hold(self._faults, self._entry())
        if until is not None:
            until.when_seen(hold.release)
        return self._faults.add(hold)

    def observe(self) -> Observation:
        """Count requests, without an effect on them."""
        return self._faults.add(Observation(self._faults, self._entry()))

    def _always(self, action: Action) -> Rule:
        return self._faults.add(ActionRule(self._faults, self._entry(), action))

    def _entry(self) -> Entry:
        return Entry(self._selector, self._schedule)


class Faults:
    """Rules for all brokers of a cluster, and the log of injected faults.

    Example:
        ```python
        rule = cluster.faults.on("EndTxn", nth=3).error("COORDINATOR_NOT_AVAILABLE")
        ...
        rule.wait()
        ```
    """

    def __init__(self, publish: Callable[[Watched], None], brokers: int = 1) -> None:
        """`publish` passes the watched APIs to all `brokers` brokers. It returns when they have effect."""
        self._publish = publish
        self._brokers = brokers
        self._monitor = Monitor()
        self._table = RuleTable()
        self._rules: dict[Entry, Rule] = {}
        self._log: list[Injection] = []
        self._errors: list[BaseException] = []
        self.calls = FunctionCalls()

    def on(
        self,
        api: str = ANY,
        *,
        nth: int | None = None,
        times: int | None = None,
        probability: float = 1.0,
        seed: int = 0,
        client_id: str | None = None,
        transactional_id: str | None = None,
        group: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        broker: int | None = None,
        sender: Literal["client", "broker"] = "client",
        when: Callable[[Request], bool] | None = None,
    ) -> Match:
        """Select requests. The result has a method for each effect.

        Args:
            api: Kafka's name of the API, such as `EndTxn`; `*`: all APIs.
            nth: Number of the first request that is selected, from 1 on. Without `times`, it is the only one.
            times: Maximum number of requests that are selected.
            probability: Probability for each request, from 0 to 1, by a random generator with `seed`.
            seed: Seed of that generator.
            client_id: Pattern of the client id, with `*` and `?`.
            transactional_id: Pattern of a transactional id in the request.
            group: Pattern of a group id in the request.
            topic: Pattern of a topic in the request.
            partition: Number of a partition in the request, of a topic that `topic` matches.
            broker: Node id of the broker that receives the request.
            sender: `client`, or `broker` for requests between brokers.
            when: Function that returns True for requests that match. It must not wait.

        Raises:
            ValueError: An argument is invalid.
        """
        api_key(api)
        if sender not in SENDERS:
            raise ValueError(f"sender={sender!r}: use one of {', '.join(SENDERS)}")
        for name, number in {"nth": nth, "times": times}.items():
            if number is not None and not is_whole(number, 1):
                raise ValueError(f"{name}={number!r}: use a whole number from 1 on")
        if partition is not None and not is_whole(partition, 0):
            raise ValueError(f"partition={partition!r}: use a whole number from 0 on")
        if broker is not None and broker not in range(1, self._brokers + 1):
            raise ValueError(f"broker={broker!r}: use the node id of a broker, from 1 to {self._brokers}")
        patterns = {"client_id": client_id, "transactional_id": transactional_id, "group": group, "topic": topic}
        for name, pattern in patterns.items():
            if pattern is not None and not isinstance(pattern, str):
                raise ValueError(f"{name}={pattern!r}: use a text, which can have the patterns * and ?")
        selected_by = {"transactional_id": transactional_id, "group": group, "topic": topic, "partition": partition}
        check_selection(api, (name for name, value in selected_by.items() if value is not None))
        if when is not None:
            _require_function("when", when)
        if not is_finite(probability) or probability > 1:
            raise ValueError(f"probability={probability}: use a number from 0 to 1")
        if nth is not None and times is None:
            times = 1
        selector = Selector(api, client_id, transactional_id, group, topic, broker, sender, partition, when)
        return Match(self, selector, Schedule(nth or 1, times, probability, seed))

    def plan(self, seed: int, duration_s: float = DURATION_S) -> FaultPlan:
        """Generate a plan of faults from a seed. `KafkaCluster.run_faults` carries it out, `print` shows it."""
        return FaultPlan.generate(seed, self._brokers, duration_s)

    @property
    def log(self) -> list[Injection]:
        """Injected faults in their order."""
        with self._monitor:
            return list(self._log)

    @property
    def errors(self) -> list[BaseException]:
        """Exceptions that functions of rules have raised. The broker handled these requests as usual."""
        with self._monitor:
            return list(self._errors)

    def clear(self) -> None:
        """Remove all rules, the log, and the errors."""
        self.remove_rules()
        with self._monitor:
            self._log.clear()
            self._errors.clear()

    def remove_rules(self) -> None:
        """Remove all rules. The broker handles held requests. The log stays."""
        with self._monitor:
            self._table.clear()
            removed = list(self._rules.values())
            self._rules.clear()
        for rule in removed:
            rule.release_all()
        self.calls.abandon()
        self._publish(self.watched())

    def add(self, rule: R) -> R:
        """Add a rule to all brokers."""
        with self._monitor:
            self._table.add(rule.entry)
            self._rules[rule.entry] = rule
        self._publish(self.watched())
        return rule

    def remove(self, rule: Rule) -> None:
        """Remove a rule from all brokers."""
        with self._monitor:
            self._table.remove(rule.entry)
            self._rules.pop(rule.entry, None)
        self._publish(self.watched())

    def wait(self, condition: Callable[[], bool], timeout_s: float, what: Callable[[], str]) -> None:
        """Wait for a condition on injected faults. Raise TimeoutError after `timeout_s` seconds."""
        with self._monitor:
            if not self._monitor.wait_for(condition, timeout_s):
                raise TimeoutError(f"waited {timeout_s:g} s for {what()}")

    def watched(self) -> Watched:
        """Return the APIs that rules concern."""
        with self._monitor:
            return [(api_key(api), sender == BROKER) for api, sender in self._table.watched()]

    def taking(self, request: Request) -> list[Rule]:
        """Count a request. Return the rules whose turn it is to decide on it, in their order."""
        with self._monitor:
            rules = [self._rules[entry] for entry in self._table.taking(request)]
            for rule in rules:
                if isinstance(rule, Observation) and rule.entry.select():
                    rule.see(request)
            self._monitor.notify_all()
            return [rule for rule in rules if not isinstance(rule, Observation)]

    async def decide(self, request: Request, rules: list[Rule]) -> Action | None:
        """Return the action of the first of `rules` that has one, and record it. None: handle the request."""
        for rule in rules:
            with self._monitor:
                is_selected = rule.entry.select()
            action = await rule.act(request) if is_selected else None
            if action is not None:
                self.note(rule, Injection(request, action))
                return action
        return None

    def failed(self, error: BaseException) -> None:
        """Record what a function of a rule has raised."""
        with self._monitor:
            self._errors.append(error)

    def note(self, rule: Rule, injection: Injection) -> None:
        """Record an injected fault."""
        with self._monitor:
            rule.injections.append(injection)
            self._log.append(injection)
            self._monitor.notify_all()


def error(name: str, *, executed: bool = False) -> Action:
    """Return the action of `Match.error`, for a function of `Match.call`."""
    return Action("error", code=error_code(name), executed=executed)


def delay(ms: float) -> Action:
    """Return the action of `Match.delay`, for a function of `Match.call`."""
    return Action("delay", ms=milliseconds(ms))


def disconnect(when: Literal["before", "after"] = "after") -> Action:
    """Return the action of `Match.disconnect`, for a function of `Match.call`."""
    if when not in {"before", "after"}:
        raise ValueError(f"when={when!r}: use 'before' or 'after'")
    return Action(f"disconnect_{when}")


def drop_request() -> Action:
    """Return the action of `Match.drop_request`, for a function of `Match.call`."""
    return Action("drop_request")


def drop_response() -> Action:
    """Return the action of `Match.drop_response`, for a function of `Match.call`."""
    return Action("drop_response")


def respond(response: Message) -> Action:
    """Return the action of `Match.respond`, for a function of `Match.call`."""
    return Action("respond", response=response)


def rewrite(function: Callable[[M], Message]) -> Action:
    """Return the action of `Match.rewrite`, for a function of `Match.call`."""
    return Action("rewrite", function=function)
