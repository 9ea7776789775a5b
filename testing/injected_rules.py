"""Rules that were added to `Faults`, by the kind of their effect."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from odradek.plurals import counted
from odradek.testing.rules import Action

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from odradek.testing.function_calls import FunctionCalls
    from odradek.testing.rules import Entry, Request

WAIT_TIMEOUT_S = 30.0
"""Seconds that `Rule.wait` waits by default."""
REQUESTS_MAX = 10_000
"""Maximum requests that one observation keeps. A description has about 1 KiB."""
HELD = Action("hold")


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


class RuleOwner(Protocol):
    """The `Faults` that a rule was added to."""

    calls: FunctionCalls

    def wait(self, condition: Callable[[], bool], timeout_s: float, what: Callable[[], str]) -> None:
        """Wait for a condition on injected faults. Raise TimeoutError after `timeout_s` seconds."""
        ...

    def remove(self, rule: Rule) -> None:
        """Remove a rule from all brokers."""
        ...

    def note(self, rule: Rule, injection: Injection) -> None:
        """Record an injected fault."""
        ...


class Rule:
    """A rule that was added. As a context manager, it ends with the block."""

    def __init__(self, faults: RuleOwner, entry: Entry) -> None:
        self._faults = faults
        self.entry = entry
        self.injections: list[Injection] = []

    @property
    def injected(self) -> int:
        """Number of faults that this rule has injected."""
        return len(self.injections)

    @property
    def matched(self) -> int:
        """Number of requests that matched, also those before `nth` and after `times`."""
        return self.entry.matched

    def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until the rule has injected `count` faults. Raise TimeoutError after `timeout_s` seconds."""
        self._faults.wait(lambda: self.injected >= count, timeout_s, lambda: self._missing(count, "injected fault"))

    def _missing(self, count: int, noun: str) -> str:
        """Return what a wait has not seen, and how many requests have matched so far."""
        return f"{counted(count, noun)} on {self.entry.selector}; {counted(self.matched, 'request')} matched the rule"

    def remove(self) -> None:
        """End the rule. Requests that wait for a response continue to wait. A second call has no effect."""
        self._faults.remove(self)

    async def act(self, request: Request) -> Action | None:
        """Return the action on a request; None: the next rule decides. Runs on the event loop in the background."""
        raise NotImplementedError

    def release_all(self) -> None:
        """End the wait of requests that this process holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


class ActionRule(Rule):
    """Rule with the same action for each request."""

    def __init__(self, faults: RuleOwner, entry: Entry, action: Action) -> None:
        super().__init__(faults, entry)
        self._action = action

    async def act(self, request: Request) -> Action | None:
        return self._action


class FunctionRule(Rule):
    """Rule whose action is the result of a function."""

    def __init__(self, faults: RuleOwner, entry: Entry, function: Callable[[Request], Action | None]) -> None:
        super().__init__(faults, entry)
        self._function = function

    async def act(self, request: Request) -> Action | None:
        action: object = await self._faults.calls.run(self._function, request)
        if action is not None and not isinstance(action, Action):
            raise TypeError(f"it returned {action!r}; return an effect of odradek.testing.faults, or None")
        return action


class Hold(Rule):
    """Rule that holds requests until `release`. Then the broker handles them, and the rule has no further effect."""

    def __init__(self, faults: RuleOwner, entry: Entry) -> None:
        super().__init__(faults, entry)
        self._released: Future[None] = Future()

    async def act(self, request: Request) -> Action | None:
        if not self._released.done():
            self._faults.note(self, Injection(request, HELD))
            await asyncio.wrap_future(self._released)
        return None

    def release(self) -> None:
        """Let the broker handle the held requests, and all later ones."""
        with suppress(InvalidStateError):
            self._released.set_result(None)

    def release_all(self) -> None:
        self.release()

    def remove(self) -> None:
        """End the rule, and let the broker handle the held requests."""
        super().remove()
        self.release()


class Observation(Rule):
    """Rule without an effect: it counts requests. The broker handles them as usual, or as later rules decide."""

    def __init__(self, faults: RuleOwner, entry: Entry) -> None:
        super().__init__(faults, entry)
        self.requests: deque[Request] = deque(maxlen=REQUESTS_MAX)
        """The last requests that were seen."""
        self._seen: Future[None] = Future()

    @property
    def seen(self) -> int:
        """Number of requests that the selection has."""
        return self.entry.selected

    def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until `count` requests were seen. Raise TimeoutError after `timeout_s` seconds."""
        self._faults.wait(lambda: self.seen >= count, timeout_s, lambda: self._missing(count, "observed request"))

    def see(self, request: Request) -> None:
        """Note a request."""
        self.requests.append(request)
        with suppress(InvalidStateError):
            self._seen.set_result(None)

    def when_seen(self, function: Callable[[], None]) -> None:
        """Call a function when the first request is seen, or now if it was seen."""
        self._seen.add_done_callback(lambda _: function())
