"""Client quotas: measurement and throttle times (KIP-13, KIP-124, KIP-219, KIP-599, KIP-612).

A request has a user and a client id. The most specific configured quota applies to it: first a quota of the pair, then
of the user, then of the client id; in each step a quota for the name precedes the default quota. All client ids of a
user share a user's quota, and all users of a client id share a client id's quota. Each pair has its own quota of a
quota for pairs. Each broker measures separately.

* `producer_byte_rate`: bytes of Produce requests per second.
* `consumer_byte_rate`: bytes of records in Fetch responses per second. A response that exceeds the quota is sent, and
  then the connection is throttled. Kafka sends such a response without records.
* `request_percentage`: time of the event loop that the first stages of handlers take; 100 is the whole time.
* `controller_mutation_rate`: created and deleted partitions per second.
* `connection_creation_rate`: new connections per second from one address.
  `odradek.broker.network.limits.ConnectionLimits` applies it.

Requests between brokers have no quota. A broker is recognized by its client id. Without authentication a client can use
that client id, too; such a client can also fetch as a follower.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final, TypeVar

from odradek.broker.config.properties import Config
from odradek.broker.quorum.peers import is_broker
from odradek.broker.quota.controller_mutations import (
    UNBOUNDED,
    BoundedControllerMutationQuota,
    ControllerMutationQuota,
)
from odradek.broker.quota.rates import SECOND_MS, Rate, TokenBucket
from odradek.broker.requests.context import RequestContext
from odradek.cluster.authorizer import ANONYMOUS
from odradek.cluster.controller.settings.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage, QuotaEntity
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.runtime.clock import Clock

FETCH_BYTES_MAX: Final = 2**31 - 1
"""Maximum bytes of one fetch response for a client without a quota: the largest value that `max_bytes` can have."""
TRACKED_MAX: Final = 10_000
"""Maximum measurements per kind of quota. Above it, the least recently used measurement is removed and starts again at
0.
"""
SECOND_US: Final = 1_000_000

QuotaKey = tuple[str, str]
"""(user, client id) of the requests that share one measurement. "" stands for all users or all client ids."""
M = TypeVar("M")


class Measurements(dict[QuotaKey, M]):
    """Measurements of one kind of quota, for the `TRACKED_MAX` keys that were used last."""

    def __init__(self, make: Callable[[], M]) -> None:
        super().__init__()
        self._make = make

    def measurement(self, key: QuotaKey) -> M:
        """Return the measurement of `key`, a new one if there is none."""
        measurement = self.pop(key, None)
        if measurement is None:
            measurement = self._make()
            if len(self) >= TRACKED_MAX:
                del self[next(iter(self))]
        self[key] = measurement
        return measurement


class ClientQuotas:
    """Quotas of this broker's clients, and the measured use of each.

    The owner subscribes `on_metadata` to the metadata cache. Before its first call there are no quotas.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[str, Mapping[QuotaEntity, float]] = {}
        self._window_ms = config.quota_window_size_seconds * SECOND_MS
        self._samples = config.quota_window_num
        controller_window_ms = config.controller_quota_window_size_seconds * SECOND_MS
        self._rates: dict[str, Measurements[Rate]] = {
            key: Measurements(lambda: Rate(self._samples, self._window_ms))
            for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        }
        self._buckets: Measurements[TokenBucket] = Measurements(
            lambda: TokenBucket(config.controller_quota_window_num, controller_window_ms)
        )

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over the quotas of `image` if `delta` changes any."""
        if not delta.changed_client_quotas():
            return
        limits: dict[str, dict[QuotaEntity, float]] = {}
        for entity, values in image.client_quotas.items():
            for key, value in values.items():
                limits.setdefault(key, {})[_canonical(entity)] = value
        self._limits = dict(limits)

    # ---- requests ---------------------------------------------------------------------------------------------------

    @property
    def measure_time(self) -> bool:
        """Return True if a `request_percentage` quota exists.

        Only then the broker measures `RequestContext.busy_us`.
        """
        return REQUEST_PERCENTAGE in self._limits

    def throttle_ms(self, context: RequestContext, response: Any) -> int:
        """Record a request and its response (None if it has none). Return the throttle time in milliseconds."""
        if not self._limits or is_broker(context.session, context.client_id):
            return 0
        throttle_ms = 0
        if context.api_key == ProduceRequest.API_KEY:
            throttle_ms = self._record(context, PRODUCER_BYTE_RATE, context.request_bytes)
        elif context.api_key == FetchRequest.API_KEY and CONSUMER_BYTE_RATE in self._limits:
            throttle_ms = self._record(context, CONSUMER_BYTE_RATE, _record_bytes(response))
        time_ms = self._record(context, REQUEST_PERCENTAGE, context.busy_us * 100 / SECOND_US)
        return max(throttle_ms, min(time_ms, self._window_ms))

    def _record(self, context: RequestContext, key: str, amount: float) -> int:
        quota = self._quota(context, key)
        if quota is None:
            return 0
        limit, quota_key = quota
        now_ms = self._clock.monotonic_ms()
        rate = self._rates[key].measurement(quota_key)
        rate.record(amount, now_ms)
        return rate.throttle_ms(limit, now_ms)

    def fetch_bytes_max(self, context: RequestContext) -> int:
        """Return the maximum bytes of a Fetch response: what the quota allows in all completed windows together.

        A larger response always exceeds the quota. Kafka limits `max_bytes` in the same way (KAFKA-6397).
        """
        quota = self._quota(context, CONSUMER_BYTE_RATE)
        if quota is None:
            return FETCH_BYTES_MAX
        return int(min(quota[0] * (self._samples - 1) * self._window_ms / SECOND_MS, FETCH_BYTES_MAX))

    def controller_mutations(self, context: RequestContext, *, strict: bool) -> ControllerMutationQuota:
        """Return the client's quota of created and deleted partitions.

        A strict quota refuses requests that exceed it.
        """
        quota = self._quota(context, CONTROLLER_MUTATION_RATE)
        if quota is None or is_broker(context.session, context.client_id):
            return UNBOUNDED
        limit, key = quota
        return BoundedControllerMutationQuota(self._buckets.measurement(key), limit, self._clock, strict=strict)

    def connection_rate(self, address: str) -> float | None:
        """Return the maximum new connections per second from `address`; None if there is no limit."""
        limits = self._limits.get(CONNECTION_CREATION_RATE)
        if limits is None:
            return None
        return limits.get(((IP, address),), limits.get(((IP, None),)))

    # ---- the quota of a request -------------------------------------------------------------------------------------

    def _quota(self, context: RequestContext, key: str) -> tuple[float, QuotaKey] | None:
        """Return (limit, key of the measurement) of the quota that applies to the request; None if there is none."""
        limits = self._limits.get(key)
        if limits is None:
            return None
        principal, client_id = context.session.principal, context.client_id or ""
        if principal.kind != ANONYMOUS.kind:
            return None  # a node; a user can have the same name
        user = principal.name
        for entity, quota_key in _candidates(user, client_id):
            limit = limits.get(entity)
            if limit is not None:
                return limit, quota_key
        return None


def _candidates(user: str, client_id: str) -> tuple[tuple[QuotaEntity, QuotaKey], ...]:
    """Return (quota entity, key of the measurement) for all entities that match a request, the most specific first."""
    both, whole_user, whole_client = (user, client_id), (user, ""), ("", client_id)
    return (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), whole_user),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), whole_user),
        (((CLIENT_ID, client_id),), whole_client),
        (((CLIENT_ID, None),), whole_client),
    )


def _canonical(entity: QuotaEntity) -> QuotaEntity:
    """Return an entity as look-ups name it. One IPv6 address has several notations, such as ::1 and 0:0:0:0:0:0:0:1."""
    kind, name = entity[0]
    if kind == IP and name is not None:
        with suppress(ValueError):  # a host name, which Apache Kafka has stored
            return ((IP, str(ip_address(name))),)
    return entity


def _record_bytes(response: Any) -> int:
    return sum(len(row.records or b"") for topic in response.responses for row in topic.partitions)
