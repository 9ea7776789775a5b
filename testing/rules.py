"""Rules of fault injection: from the description of a request to an action. Pure."""

from __future__ import annotations

import random
from base64 import b64encode
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from odradek.protocol.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.protocol.schema import Message

ANY = "*"
"""Pattern that each name matches."""
CLIENT, BROKER = "client", "broker"
SENDERS = (CLIENT, BROKER)


@dataclass(frozen=True)
class Request:
    """A request that a broker has received.

    Attributes:
        broker: Node id of the broker.
        api: Name of the API, such as `EndTxn`.
        version: Version of the request.
        client_id: Client id, or "".
        sender: `client` or `broker`.
        topics: Names of the topics in the request.
        partitions: Topic and number of the partitions in the request.
        groups: Group ids in the request.
        transactional_ids: Transactional ids in the request.
        fields: Fields of the request as JSON values. Bytes are replaced by their number.
    """

    broker: int
    api: str
    version: int = 0
    client_id: str = ""
    sender: str = CLIENT
    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, broker: int, raw: Mapping[str, Any]) -> Request:
        """Return the request that a broker has described."""
        return cls(
            broker,
            raw["api"],
            raw["version"],
            raw["client_id"],
            BROKER if raw["of_broker"] else CLIENT,
            tuple(raw["topics"]),
            tuple((topic, partition) for topic, partition in raw["partitions"]),
            tuple(raw["groups"]),
            tuple(raw["transactional_ids"]),
            raw["fields"],
        )


@dataclass(frozen=True)
class Selector:
    """Condition on a request. Names are patterns with `*` and `?`; None matches each request.

    `partition` is the number of a partition of a topic that `topic` matches.
    """

    api: str = ANY
    client_id: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    topic: str | None = None
    broker: int | None = None
    sender: str = CLIENT
    partition: int | None = None
    when: Callable[[Request], bool] | None = None

    def __str__(self) -> str:
        """Return the API and the other conditions: `EndTxn (transactional_id='a')`."""
        names = ("client_id", "transactional_id", "group", "topic", "partition", "broker")
        given = [f"{name}={value!r}" for name in names if (value := getattr(self, name)) is not None]
        given += [f"sender={self.sender!r}"] * (self.sender != CLIENT) + ["when=..."] * (self.when is not None)
        api = "all APIs" if self.api == ANY else self.api
        return f"{api} ({', '.join(given)})" if given else api

    def matches(self, request: Request) -> bool:
        """Return True if the request fulfills all conditions."""
        return (
            self.api in {ANY, request.api}
            and self.sender == request.sender
            and self.broker in {None, request.broker}
            and (self.client_id is None or fnmatchcase(request.client_id, self.client_id))
            and _any_matches(self.transactional_id, request.transactional_ids)
            and _any_matches(self.group, request.groups)
            and _any_matches(self.topic, request.topics)
            and self._has_partition(request)
            and (self.when is None or self.when(request))
        )

    def _has_partition(self, request: Request) -> bool:
        return self.partition is None or any(
            number == self.partition and (self.topic is None or fnmatchcase(topic, self.topic))
            for topic, number in request.partitions
        )


def _any_matches(pattern: str | None, names: tuple[str, ...]) -> bool:
    return pattern is None or any(fnmatchcase(name, pattern) for name in names)


@dataclass(frozen=True)
class Action:
    """Action of a broker on one request. `odradek.broker.hooks.dispatcher` lists the kinds.

    Attributes:
        kind: Kind of the action.
        code: Error code of an error.
        ms: Milliseconds of a delay.
        executed: True if the broker handles the request before an error.
        response: Response that is sent in place of that of the broker.
        function: Function that makes the response from that of the broker.
    """

    kind: str
    code: int = 0
    ms: float = 0
    executed: bool = False
    response: Message | None = None
    function: Callable[[Any], Message] | None = None

    def message(self, version: int) -> dict[str, Any]:
        """Return the action as the broker receives it, for a request of this version."""
        message = {"kind": self.kind, "code": self.code, "ms": self.ms, "executed": self.executed}
        if self.response is not None:
            message["response"] = b64encode(encode(self.response, version)).decode()
        return message


@dataclass(frozen=True)
class Schedule:
    """Selection among the requests that match: the request number `nth` and the ones after it, at most `times` of them.

    Attributes:
        nth: Number of the first request, from 1 on.
        times: Maximum number of requests; None: no maximum.
        probability: Probability for each of them, by a random generator with `seed`.
        seed: Seed of the random generator.
    """

    nth: int = 1
    times: int | None = None
    probability: float = 1.0
    seed: int = 0


class Entry:
    """One rule in the table, with its counters."""

    def __init__(self, selector: Selector, schedule: Schedule) -> None:
        self.selector = selector
        self.schedule = schedule
        self.matched = 0
        self.selected = 0
        self._random = random.Random(schedule.seed)

    def takes(self, request: Request) -> bool:
        """Count the request if it matches. Return True if the schedule selects it."""
        if not self.selector.matches(request):
            return False
        self.matched += 1
        schedule = self.schedule
        if self.matched < schedule.nth or self.is_complete:
            return False
        return schedule.probability >= 1 or self._random.random() < schedule.probability

    def select(self) -> bool:
        """Return True, and count it, if the rule may still select a request."""
        if self.is_complete:
            return False
        self.selected += 1
        return True

    @property
    def is_complete(self) -> bool:
        """True if the schedule selects no further request."""
        return self.schedule.times is not None and self.selected >= self.schedule.times


class RuleTable:
    """Rules in the order of their creation. All count a request, and those that take it decide in this order."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Append a rule."""
        self._entries.append(entry)

    def remove(self, entry: Entry) -> None:
        """Remove a rule, if it is there."""
        if entry in self._entries:
            self._entries.remove(entry)

    def clear(self) -> None:
        """Remove all rules."""
        self._entries.clear()

    def taking(self, request: Request) -> list[Entry]:
        """Count the request, and return the rules that take it."""
        return [entry for entry in self._entries if entry.takes(request)]

    def watched(self) -> list[tuple[str, str]]:
        """Return API and sender of each rule that can still select a request."""
        return sorted({(each.selector.api, each.selector.sender) for each in self._entries if not each.is_complete})
