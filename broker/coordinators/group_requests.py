"""Common parts of the handlers of group requests: caller, authorization, topics, and several groups in one request."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.error_map import wire_error
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.image import MetadataImage
from odradek.coordinator.group.commands import Caller
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from asyncio import Future

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")


def caller_of(context: RequestContext) -> Caller:
    """Return the client, with its address as Java formats it (`/127.0.0.1`): tools print it."""
    return Caller(context.client_id or "", f"/{context.session.client_host}", context.api_version)


def check_group(context: RequestContext, operation: AclOperation, group_id: str) -> None:
    """Raise Refusal(GROUP_AUTHORIZATION_FAILED) if the client lacks `operation` on the group."""
    if not context.allowed(operation, ResourceType.GROUP, group_id):
        raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def result_or_future(response: "Future[T]") -> "T | Future[T]":
    """Return the result of a done future, so that no task is created for it, or else the future. Raise its Refusal."""
    return response.result() if response.done() else response


def while_connected(context: RequestContext, response: "Future[T]") -> "T | Future[T]":
    """Return like `result_or_future`, and cancel the future if the connection closes."""
    if response.done():
        return response.result()
    unsubscribe = context.session.on_end(response.cancel)
    response.add_done_callback(lambda _response: unsubscribe())
    return response


def topic_error(image: MetadataImage, allowed: dict[str, None], topic: str) -> ErrorCode:
    """Return NONE if the topic exists and is in `allowed`; otherwise the error for the client."""
    if topic not in allowed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    exists = image.topic(topic) is not None
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def allowed_topics(
    context: RequestContext, operation: AclOperation, topics: Iterable[str], *, by_id: bool
) -> dict[str, None]:
    """Return the distinct names in `topics` on which the client has `operation`.

    `by_id`: the request has ids, and an unknown id has an empty name, which is left out.
    """
    names = list(dict.fromkeys(name for name in topics if name or not by_id))
    return dict.fromkeys(context.split_allowed(operation, ResourceType.TOPIC, names)[0])


class _Indexed(Protocol):
    partition_index: int


P = TypeVar("P", bound=_Indexed)


def split_existing(image: MetadataImage, topic: str, partitions: Sequence[P]) -> tuple[list[P], list[P]]:
    """Split `partitions` into those that exist in the topic and those that do not."""
    existing = image.topic(topic)
    known = {} if existing is None else existing.partitions
    present = [partition for partition in partitions if partition.partition_index in known]
    return present, [partition for partition in partitions if partition.partition_index not in known]


class _ByPartition(Protocol):
    partitions: list[Any]


B = TypeVar("B", bound=_ByPartition)


def merge_topics(refused: Sequence[B], completed: Iterable[B], key: Callable[[B], Hashable]) -> list[B]:
    """Merge the refused topics and the topics of the coordinator's response, so that each topic occurs once.

    `key` returns the name or id of a topic. Without refused topics, the response is returned unchanged.
    """
    if not refused:
        return list(completed)
    topics: dict[Hashable, B] = {}
    for response in (*refused, *completed):
        known = topics.setdefault(key(response), response)
        if known is not response:
            known.partitions += response.partitions
    return list(topics.values())


def request_each(items: Sequence[K], request: Callable[[K], "Future[T]"]) -> "list[tuple[K, Future[T] | Refusal]]":
    """Call `request` for each item, in order. Return each item with its future, or with the Refusal that was raised.

    The Refusal has no traceback. Its frames refer to the list that contains it, and this cycle would keep the request
    in memory until the next garbage collection.
    """
    requested: list[tuple[K, Future[T] | Refusal]] = []
    for item in items:
        try:
            requested.append((item, request(item)))
        except Refusal as refusal:
            requested.append((item, refusal.with_traceback(None)))
    return requested


async def responses_of(
    context: RequestContext,
    requested: "Sequence[tuple[K, Future[T] | Refusal]]",
    refused: Callable[[K, ErrorCode, str | None], R],
) -> list[T | R]:
    """Return one response per item of `requested`; `refused(item, error, message)` creates that of a refused item."""
    responses: list[T | R] = []
    for item, response in requested:
        refusal: Refusal | None = None
        if isinstance(response, Refusal):
            refusal = response
        else:
            try:
                responses.append(await response)
            except Refusal as raised:
                refusal = raised.with_traceback(None)  # see `request_each`
        if refusal is not None:
            error = wire_error(context.api_key, context.api_version, refusal.error)
            responses.append(refused(item, error, refusal.message))
    return responses
