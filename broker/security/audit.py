"""Audit log: denied operations, and allowed changes of the cluster's state, as structured events.

The events have the field `logger` with the value `odradek.audit`. Their number is bounded per principal and address,
and in total. An event states how many events of its principal and address were suppressed before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import structlog

from odradek.broker.requests.context import Access, RequestContext
from odradek.cluster.authorizer import Principal
from odradek.runtime.clock import Clock

EVENTS_PER_SUBJECT_MAX: Final = 20
"""Maximum events per second of one principal at one address."""
EVENTS_MAX: Final = 500
"""Maximum events per second of the node. One takes about 50 us of the event loop."""
SUBJECTS_MAX: Final = 1_000
"""Maximum principals and addresses whose events are counted. One takes about 300 bytes."""
NAMES_MAX: Final = 5
"""Maximum resource names in an event. A request can have thousands."""
NAME_CHARACTERS_MAX: Final = 100
"""Maximum characters of a name in an event. Clients choose the names."""
WINDOW_MS: Final = 1_000

_logger = structlog.get_logger("odradek.audit")

Subject = tuple[Principal, str]
"""Principal and address of a client."""


@dataclass(slots=True)
class _Window:
    """Events of one subject in its present second, and suppressed events since its last logged event."""

    began_ms: int
    count: int = 0
    suppressed: int = 0


class EventLimits:
    """Limits of events per second: per subject, and for all subjects together."""

    def __init__(self) -> None:
        self._windows: dict[Subject, _Window] = {}
        self._total = _Window(0)

    def admit(self, subject: Subject, now_ms: int) -> int | None:
        """Return how many events of the subject were suppressed before this one. None: suppress this one, too."""
        window = self._windows.pop(subject, None)
        if window is None:
            window = _Window(now_ms)
            if len(self._windows) >= SUBJECTS_MAX:
                del self._windows[next(iter(self._windows))]
        self._windows[subject] = window  # the last one: the subject without events for the longest time is the first
        _begin_second(window, now_ms)
        _begin_second(self._total, now_ms)
        if window.count >= EVENTS_PER_SUBJECT_MAX or self._total.count >= EVENTS_MAX:
            window.suppressed += 1
            return None
        window.count += 1
        self._total.count += 1
        suppressed, window.suppressed = window.suppressed, 0
        return suppressed


def _begin_second(window: _Window, now_ms: int) -> None:
    if now_ms - window.began_ms >= WINDOW_MS:
        window.began_ms, window.count = now_ms, 0


class AuditLog:
    """Log of authorization decisions. Denied operations and allowed changes have separate limits."""

    def __init__(self, clock: Clock, api_names: Mapping[int, str]) -> None:
        """`api_names` are the names of the APIs by their keys."""
        self._clock = clock
        self._api_names = api_names
        self._denied = EventLimits()
        self._changes = EventLimits()

    def denied(self, context: RequestContext, access: Access) -> None:
        """Log an operation that is denied."""
        self._log(self._denied, "operation denied", context, access)

    def changed(self, context: RequestContext, access: Access) -> None:
        """Log an operation that is allowed. The change can still be refused for another reason."""
        self._log(self._changes, "change allowed", context, access)

    def _log(self, limits: EventLimits, event: str, context: RequestContext, access: Access) -> None:
        session, names = context.session, access.names
        suppressed = limits.admit((session.principal, session.client_host), self._clock.monotonic_ms())
        if suppressed is None:
            return
        decision = context.authorizer.decide(
            session.principal, session.client_host, access.operation, access.resource, names[0]
        )
        more: dict[str, object] = {"suppressed": suppressed} if suppressed else {}
        if len(names) > NAMES_MAX:
            more["resources"] = len(names)
        if about := _shortened(access.about):
            more["about"] = about
        _logger.info(
            event,
            logger="odradek.audit",
            principal=str(session.principal)[:NAME_CHARACTERS_MAX],
            address=session.client_host,
            api=self._api_names.get(context.api_key, str(context.api_key)),
            operation=access.operation.name,
            resource=access.resource.name,
            names=_shortened(names),
            rule=(access.rule or str(decision))[: 2 * NAME_CHARACTERS_MAX],
            **more,
        )


def _shortened(texts: Iterable[str]) -> list[str]:
    return [text[:NAME_CHARACTERS_MAX] for text in islice(texts, NAMES_MAX)]
