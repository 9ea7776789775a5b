"""Bugs that a hostile client finds. Each replaces one function (see `planted`)."""

from collections.abc import Callable
from typing import Any

from odradek.broker.requests.listener import ALL_ROLES


def serve_all_roles(original: property) -> property:
    """Each connection has the roles of clients, brokers and controllers, on each listener."""
    assert original.fget is not None
    own_roles = original.fget

    def roles(self: Any) -> tuple[str, ...]:
        return (*own_roles(self), *ALL_ROLES)

    return property(roles)


def write_any_marker(original: Callable[..., Any]) -> Callable[..., Any]:
    """A client may write any marker, not only one that aborts a hanging transaction."""

    async def abort_hanging(context: Any, request: Any, markers: Any) -> Any:
        from odradek.broker.apis.write_txn_markers import _response

        return _response(context, request, await context.broker.markers.write(markers))

    return abort_hanging


def append_unchecked(original: Callable[..., Any]) -> Callable[..., Any]:
    """A record of `__admin_client` is appended to the topic of a coordinator without being decoded."""

    def check_client_append(topic: str, partition: int, partition_count: int, batch: Any) -> None:
        """Accept the batch."""

    return check_client_append


def append_readable(original: Callable[..., Any]) -> Callable[..., Any]:
    """Any record of `__admin_client` that can be decoded is appended to the topic of a coordinator."""

    def owner(topic: str, record: Any) -> str:
        from odradek.coordinator.group import records as group_records
        from odradek.coordinator.txn import records as txn_records
        from odradek.protocol.internal_topics import TRANSACTION_STATE

        if topic == TRANSACTION_STATE:
            transactional_id = txn_records.decode_key(record.key)
            return original(topic, record) if transactional_id is None else transactional_id
        entry = group_records.from_record(record)
        return original(topic, record) if entry is None else group_records.group_of(entry.key)

    return owner


def adopt_any_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    """A voter adopts the epoch of any request."""

    def admits_epoch(self: Any, epoch: int, now_ms: int) -> bool:
        return True

    return admits_epoch
