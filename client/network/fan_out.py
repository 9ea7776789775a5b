"""Requests to several brokers at the same time, of which some may be unreachable."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from odradek.client.errors import ClientError, name_of
from odradek.client.network.connection import VERSION_MAX
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping

    from odradek.client.network.cluster import Cluster
    from odradek.protocol.schema import Message

T = TypeVar("T")

NAMES_BYTES_MAX: Final = 512 * 2**10
"""Maximum bytes of names in one request, unless its first name alone has more.

A broker of Odradek closes the connection of a request whose elements need more than 4 MiB, and a group id or a
transactional id has up to 32 KiB.
"""
NAME_BYTES: Final = 64
"""Bytes that a name counts in addition to its own."""


@dataclass(frozen=True, slots=True)
class PartialResult(Generic[T]):
    """The rows that were found, and the brokers whose rows are missing: reason by node id."""

    rows: list[T]
    unreachable: dict[int, str]


class FanOut:
    """The requests of one operation to several brokers.

    With `tolerant`, the operation continues without a broker that does not respond, and `unreachable` maps its node id
    to the reason. Such a broker gets no further request of this operation. Without `tolerant` the exception is raised.
    """

    def __init__(self, cluster: Cluster, *, tolerant: bool = False) -> None:
        self.cluster = cluster
        self.unreachable: dict[int, str] = {}
        self._tolerant = tolerant

    async def request(
        self,
        node_id: int,
        request: Message,
        retry_on: Callable[[Any], int] | None = None,
        *,
        version_max: int = VERSION_MAX,
    ) -> Any | None:
        """Return the response of one broker, or None if it is unreachable and this is tolerated.

        `retry_on` returns the error code of a response. A retriable code is retried under the retry policy.
        """
        if node_id in self.unreachable:
            return None
        attempts = self.cluster.attempts()
        try:
            while True:
                response = await self.cluster.request(node_id, request, version_max=version_max)
                if retry_on is None or await attempts.prepare(retry_on(response)) is None:
                    return response
        except ClientError as error:
            if not self._tolerant:
                raise
            self.unreachable[node_id] = str(error)
            return None

    async def request_each(
        self,
        requests: Mapping[int, Message],
        retry_on: Callable[[Any], int] | None = None,
        *,
        version_max: int = VERSION_MAX,
    ) -> dict[int, Any]:
        """Send a request to each of several brokers.

        Return the responses by node id, without those of unreachable brokers.
        """
        responses = await gathered(
            *(self.request(node_id, each, retry_on, version_max=version_max) for node_id, each in requests.items())
        )
        found = zip(requests, responses, strict=True)
        return {node_id: response for node_id, response in found if response is not None}

    async def request_names(
        self,
        names: Mapping[int, Iterable[str]],
        request: Callable[[list[str]], Message],
        *,
        version_max: int = VERSION_MAX,
    ) -> list[tuple[int, Any]]:
        """Send requests that have names to several brokers, and return node id and response of each.

        A broker receives its requests one after the other, each with up to NAMES_BYTES_MAX. The responses of
        unreachable brokers are left out.
        """

        async def of_node(node_id: int, of_broker: Iterable[str]) -> list[tuple[int, Any]]:
            found = []
            for part in slices(of_broker):
                response = await self.request(node_id, request(part), version_max=version_max)
                if response is not None:
                    found.append((node_id, response))
            return found

        rows = await gathered(*(of_node(node_id, of_broker) for node_id, of_broker in names.items()))
        return [row for of_broker in rows for row in of_broker]

    def tolerates(self, node_id: int, error_code: int) -> bool:
        """Omit a broker that responded with an error code. Return False if this is not tolerated, or for NONE."""
        if not self._tolerant or error_code == ErrorCode.NONE:
            return False
        self.unreachable[node_id] = name_of(error_code)
        return True


def slices(names: Iterable[str]) -> Iterator[list[str]]:
    """Split names into lists of up to NAMES_BYTES_MAX. Each has a name at least."""
    part: list[str] = []
    size = 0
    for name in names:
        added = len(name.encode(errors="replace")) + NAME_BYTES
        if part and size + added > NAMES_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(name)
        size += added
    if part:
        yield part


async def gathered(*coroutines: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines concurrently and return their results in order. Wait for all, then raise the first exception."""
    results = await asyncio.gather(*coroutines, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
