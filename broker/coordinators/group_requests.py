"""What requests about groups have in common: who asks, which of the topics count, many groups in one request."""

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
    """The client, with its address as Java writes it (which is what tools show)."""
    return Caller(context.client_id or "", f"/{context.session.client_host}", context.api_version)


def check_group(context: RequestContext, operation: AclOperation, group_id: str) -> None:
    """Raises Refusal(GROUP_AUTHORIZATION_FAILED)."""
    if not context.allowed(operation, ResourceType.GROUP, group_id):
        raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def now_or_later(answer: "Future[T]") -> "T | Future[T]":
    """What a handler returns: no task is made for what is there already. Raises Refusal."""
    return answer.result() if answer.done() else answer


def while_connected(context: RequestContext, answer: "Future[T]") -> "T | Future[T]":
    """As `now_or_later`, for an answer that other clients may keep away for long: nobody waits for a client that is gone."""
    if answer.done():
        return answer.result()
    take_back = context.session.on_end(answer.cancel)
    answer.add_done_callback(lambda _answer: take_back())
    return answer


def topic_error(image: MetadataImage, allowed: dict[str, None], topic: str) -> ErrorCode:
    """Return NONE for a topic that exists and is among `allowed`."""
    if topic not in allowed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    exists = image.topic(topic) is not None
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def allowed_topics(context: RequestContext, operation: AclOperation, topics: Sequence[str]) -> dict[str, None]:
    names = list(dict.fromkeys(topics))
    return dict.fromkeys(context.split_allowed(operation, ResourceType.TOPIC, names)[0])


class _Indexed(Protocol):
    partition_index: int


P = TypeVar("P", bound=_Indexed)


def split_existing(image: MetadataImage, topic: str, partitions: Sequence[P]) -> tuple[list[P], list[P]]:
    """Return (partitions that the topic has, partitions that it does not have)."""
    found = image.topic(topic)
    known = {} if found is None else found.partitions
    there = [partition for partition in partitions if partition.partition_index in known]
    return there, [partition for partition in partitions if partition.partition_index not in known]


class _ByPartition(Protocol):
    partitions: list[Any]


B = TypeVar("B", bound=_ByPartition)


def joined(refused: Sequence[B], answered: Iterable[B], key: Callable[[B], Hashable]) -> list[B]:
    """What was refused here and what the coordinator has said, a topic once, however often it was named. Where nothing was refused,
    as the coordinator has said it.
    """
    if not refused:
        return list(answered)
    topics: dict[Hashable, B] = {}
    for answer in (*refused, *answered):
        known = topics.setdefault(key(answer), answer)
        if known is not answer:
            known.partitions += answer.partitions
    return list(topics.values())


def ask_each(items: Sequence[K], ask: Callable[[K], "Future[T]"]) -> "list[tuple[K, Future[T] | Refusal]]":
    """Ask for each group, now and in order."""
    asked: list[tuple[K, Future[T] | Refusal]] = []
    for item in items:
        try:
            asked.append((item, ask(item)))
        except Refusal as refusal:
            asked.append((item, refusal))
    return asked


async def answers_of(
    context: RequestContext,
    asked: "Sequence[tuple[K, Future[T] | Refusal]]",
    refused: Callable[[K, ErrorCode, str | None], R],
) -> list[T | R]:
    """One answer for each group; `refused(item, error, message)` makes that of one that is refused."""
    found: list[T | R] = []
    for item, answer in asked:
        try:
            if isinstance(answer, Refusal):
                raise answer
            found.append(await answer)
        except Refusal as refusal:
            error = wire_error(context.api_key, context.api_version, refusal.error)
            found.append(refused(item, error, refusal.message))
    return found
