"""Quotas of clients, obeyed (KIP-13, KIP-124, KIP-219, KIP-599, KIP-612).

Of what is set for a request's user and client id the most specific counts: both together, then the user, then the client id, a name
of its own before the default. A quota for users is shared by all client ids of a user, one for client ids by all users of it, one for
both is each pair's own. Each broker measures for itself.

* `producer_byte_rate`: bytes of Produce requests. `consumer_byte_rate`: bytes of records in answers to Fetch; one that takes a
  consumer beyond its quota is sent, and then the consumer is silent for as long as it takes. (Kafka sends it empty.)
* `request_percentage`: time on the loop, 100 for all of it, of handlers' first stages.
* `controller_mutation_rate`: partitions that are made or deleted, in a second.
* `connection_creation_rate`: of one address; obeyed by `odradek.broker.network.limits.ConnectionLimits`.

Brokers that ask on behalf of the cluster have no quota. They are known by the client id that they go by: without authentication,
whoever may fetch as a follower may as well call itself so.
"""

from collections.abc import Callable, Mapping
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
"""Whose use is remembered, for each kind of quota; when there are more, who was heard of least recently begins anew."""
PERCENT: Final = 100
SECOND_US: Final = 1_000_000

Who = tuple[str, str]
"""(user, client id) that share one measure, "" for all of them."""
M = TypeVar("M")


class Measures(dict[Who, M]):
    """What was measured, of the last `TRACKED_MAX` that were heard of."""

    def __init__(self, make: Callable[[], M]) -> None:
        super().__init__()
        self._make = make

    def of(self, who: Who) -> M:
        measure = self.pop(who, None)
        if measure is None:
            measure = self._make()
            if len(self) >= TRACKED_MAX:
                del self[next(iter(self))]
        self[who] = measure
        return measure


class ClientQuotas:
    """`on_metadata` is to be subscribed; until then nobody has a quota."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[str, Mapping[QuotaEntity, float]] = {}
        self._window_ms = config.quota_window_size_seconds * SECOND_MS
        self._samples = config.quota_window_num
        controller_window_ms = config.controller_quota_window_size_seconds * SECOND_MS
        self._rates: dict[str, Measures[Rate]] = {
            key: Measures(lambda: Rate(self._samples, self._window_ms))
            for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        }
        self._buckets: Measures[TokenBucket] = Measures(
            lambda: TokenBucket(config.controller_quota_window_num, controller_window_ms)
        )

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not delta.changed_client_quotas():
            return
        limits: dict[str, dict[QuotaEntity, float]] = {}
        for entity, values in image.client_quotas.items():
            for key, value in values.items():
                limits.setdefault(key, {})[entity] = value
        self._limits = dict(limits)

    # ---- requests ---------------------------------------------------------------------------------------------------

    @property
    def measure_time(self) -> bool:
        """Return whether a request_percentage quota exists: then `RequestContext.busy_us` is measured."""
        return REQUEST_PERCENTAGE in self._limits

    def throttle_ms(self, context: RequestContext, response: Any) -> int:
        """Record the request and its response (None if there is none); return how long its client is asked to stay silent."""
        if not self._limits or is_broker(context.session, context.client_id):
            return 0
        throttle_ms = 0
        if context.api_key == ProduceRequest.API_KEY:
            throttle_ms = self._record(context, PRODUCER_BYTE_RATE, context.request_bytes)
        elif context.api_key == FetchRequest.API_KEY and CONSUMER_BYTE_RATE in self._limits:
            throttle_ms = self._record(context, CONSUMER_BYTE_RATE, _record_bytes(response))
        time_ms = self._record(context, REQUEST_PERCENTAGE, context.busy_us * PERCENT / SECOND_US)
        return max(throttle_ms, min(time_ms, self._window_ms))

    def _record(self, context: RequestContext, key: str, amount: float) -> int:
        found = self._limit(context, key)
        if found is None:
            return 0
        limit, who = found
        now_ms = self._clock.monotonic_ms()
        rate = self._rates[key].of(who)
        rate.record(amount, now_ms)
        return rate.throttle_ms(limit, now_ms)

    def fetch_bytes_max(self, context: RequestContext) -> int:
        """What fits all windows but the one that is going on: more would never be within the quota."""
        found = self._limit(context, CONSUMER_BYTE_RATE)
        if found is None:
            return FETCH_BYTES_MAX
        return int(min(found[0] * (self._samples - 1) * self._window_ms / SECOND_MS, FETCH_BYTES_MAX))

    def controller_mutations(self, context: RequestContext, *, strict: bool) -> ControllerMutationQuota:
        """Return the quota of the client for creating and deleting partitions; `strict` refuses requests over the quota."""
        found = self._limit(context, CONTROLLER_MUTATION_RATE)
        if found is None:
            return UNBOUNDED
        limit, who = found
        return BoundedControllerMutationQuota(self._buckets.of(who), limit, self._clock, strict=strict)

    def connection_rate(self, address: str) -> float | None:
        """Return the new connections per second that `address` may open; None for no limit."""
        limits = self._limits.get(CONNECTION_CREATION_RATE)
        if limits is None:
            return None
        return limits.get(((IP, address),), limits.get(((IP, None),)))

    # ---- who has which quota ----------------------------------------------------------------------------------------

    def _limit(self, context: RequestContext, key: str) -> tuple[float, Who] | None:
        """The quota, and who shares it; None without one."""
        limits = self._limits.get(key)
        if limits is None:
            return None
        user, client_id = context.session.principal.name, context.client_id or ""
        for entity, who in _candidates(user, client_id):
            limit = limits.get(entity)
            if limit is not None:
                return limit, who
        return None


def _candidates(user: str, client_id: str) -> tuple[tuple[QuotaEntity, Who], ...]:
    """Entities that the request is one of, the most specific first."""
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


def _record_bytes(response: Any) -> int:
    return sum(len(row.records or b"") for topic in response.responses for row in topic.partitions)
