"""Fault injection as tests see it: rules, their effects, and the log of injected faults."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Condition as Monitor
from typing import TYPE_CHECKING, Literal, Self

from odradek.testing.api_names import api_key, error_code
from odradek.testing.plan import DURATION_S, FaultPlan
from odradek.testing.rules import ANY, BROKER, SENDERS, Action, Entry, RuleTable, Schedule, Selector

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from odradek.testing.rules import Request

WAIT_TIMEOUT_S = 30.0
"""Seconds that `Rule.wait` waits by default."""

Watched = list[tuple[int, bool]]
"""API key and True for requests of brokers, for each pair that rules concern."""


@dataclass(frozen=True)
class Injection:
    """A fault that was injected: the request, and the action on it."""

    request: Request
    action: Action

    def __str__(self) -> str:
        request = self.request
        names = [*request.transactional_ids, *request.groups, *request.topics]
        details = f" ({', '.join(names)})" if names else ""
        return f"broker {request.broker}: {request.api} of {request.client_id!r}{details}: {self.action.kind}"


class Rule:
    """A rule that was added. As a context manager, it ends with the block."""

    def __init__(self, faults: Faults, entry: Entry, effect: Callable[[Request], Action | None]) -> None:
        self._faults = faults
        self.entry = entry
        self.effect = effect
        self.injections: list[Injection] = []

    @property
    def injected(self) -> int:
        """Number of faults that this rule has injected."""
        return len(self.injections)

    def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until the rule has injected `count` faults. Raise TimeoutError after `timeout_s` seconds."""
        self._faults.wait(lambda: self.injected >= count, timeout_s, f"{count} faults on {self.entry.selector}")

    def remove(self) -> None:
        """End the rule. Requests that wait for a response continue to wait."""
        self._faults.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


class Match:
    """Requests that a rule concerns. Each method adds a rule with one effect, which begins before it returns."""

    def __init__(self, faults: Faults, selector: Selector, schedule: Schedule) -> None:
        self._faults = faults
        self._selector = selector
        self._schedule = schedule

    def error(self, name: str, *, executed: bool = False) -> Rule:
        """Respond with an error code by its name. With `executed`, the broker handles the request before."""
        return self._always(Action("error", code=error_code(name), executed=executed))

    def delay(self, ms: float) -> Rule:
        """Handle the request after `ms` milliseconds. Later requests of the connection wait, too."""
        return self._always(Action("delay", ms=ms))

    def disconnect(self, when: Literal["before", "after"] = "after") -> Rule:
        """Close the connection, before the request is handled, or after it in place of the response."""
        if when not in {"before", "after"}:
            raise ValueError(f"when={when!r}: use 'before' or 'after'")
        return self._always(Action(f"disconnect_{when}"))

    def drop_request(self) -> Rule:
        """Do not handle the request, and send no response, until the client closes the connection."""
        return self._always(Action("drop_request"))

    def drop_response(self) -> Rule:
        """Handle the request, and send no response, until the client closes the connection."""
        return self._always(Action("drop_response"))

    def call(self, function: Callable[[Request], Action | None]) -> Rule:
        """Call `function` in a thread of the test process. The broker waits for the action; None: handle the request.

        The functions `error`, `delay`, `disconnect`, `drop_request` and `drop_response` of this module make actions.
        """
        return self._faults.add(Entry(self._selector, self._schedule), function)

    def _always(self, action: Action) -> Rule:
        return self._faults.add(Entry(self._selector, self._schedule), lambda _: action)


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
        broker: int | None = None,
        sender: Literal["client", "broker"] = "client",
    ) -> Match:
        """Select requests. The result has a method for each effect.

        Args:
            api: Kafka's name of the API, such as `EndTxn`; `*`: all APIs.
            nth: Number of the first request that is selected, from 1 on. Without `times`, it is the only one.
            times: Maximum number of requests that are selected.
            probability: Probability for each request, by a random generator with `seed`.
            seed: Seed of that generator.
            client_id: Pattern of the client id, with `*` and `?`.
            transactional_id: Pattern of a transactional id in the request.
            group: Pattern of a group id in the request.
            topic: Pattern of a topic in the request.
            broker: Node id of the broker that receives the request.
            sender: `client`, or `broker` for requests between brokers.

        Raises:
            ValueError: An argument is invalid.
        """
        api_key(api)
        if sender not in SENDERS:
            raise ValueError(f"sender={sender!r}: use one of {', '.join(SENDERS)}")
        if (nth is not None and nth < 1) or (times is not None and times < 1):
            raise ValueError(f"nth={nth}, times={times}: numbers begin at 1")
        if nth is not None and times is None:
            times = 1
        selector = Selector(api, client_id, transactional_id, group, topic, broker, sender)
        return Match(self, selector, Schedule(nth or 1, times, probability, seed))

    def plan(self, seed: int, duration_s: float = DURATION_S) -> FaultPlan:
        """Generate a plan of faults from a seed. `KafkaCluster.run_faults` carries it out, `print` shows it."""
        return FaultPlan.generate(seed, self._brokers, duration_s)

    @property
    def log(self) -> list[Injection]:
        """Injected faults in their order."""
        with self._monitor:
            return list(self._log)

    def clear(self) -> None:
        """Remove all rules, and the log."""
        self.remove_rules()
        with self._monitor:
            self._log.clear()

    def remove_rules(self) -> None:
        """Remove all rules. The log stays."""
        with self._monitor:
            self._table.clear()
            self._rules.clear()
        self._publish(self.watched())

    def add(self, entry: Entry, effect: Callable[[Request], Action | None]) -> Rule:
        """Add a rule to all brokers."""
        rule = Rule(self, entry, effect)
        with self._monitor:
            self._table.add(entry)
            self._rules[entry] = rule
        self._publish(self.watched())
        return rule

    def remove(self, rule: Rule) -> None:
        """Remove a rule from all brokers."""
        with self._monitor:
            self._table.remove(rule.entry)
            self._rules.pop(rule.entry, None)
        self._publish(self.watched())

    def wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait for a condition on injected faults. Raise TimeoutError after `timeout_s` seconds."""
        with self._monitor:
            if not self._monitor.wait_for(condition, timeout_s):
                raise TimeoutError(f"waited {timeout_s:g} s for {what}")

    def watched(self) -> Watched:
        """Return the APIs that rules concern."""
        with self._monitor:
            return [(api_key(api), sender == BROKER) for api, sender in self._table.watched()]

    def rule_for(self, request: Request) -> Rule | None:
        """Return the rule that decides on a request, and count the request."""
        with self._monitor:
            entry = self._table.decide(request)
            return None if entry is None else self._rules[entry]

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
    return Action("delay", ms=ms)


def disconnect(when: Literal["before", "after"] = "after") -> Action:
    """Return the action of `Match.disconnect`, for a function of `Match.call`."""
    return Action(f"disconnect_{when}")


def drop_request() -> Action:
    """Return the action of `Match.drop_request`, for a function of `Match.call`."""
    return Action("drop_request")


def drop_response() -> Action:
    """Return the action of `Match.drop_response`, for a function of `Match.call`."""
    return Action("drop_response")
