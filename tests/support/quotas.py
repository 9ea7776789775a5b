"""Client quotas without limits, for tests of other parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.broker.quota.client_quotas import FETCH_BYTES_MAX, ClientQuotas
from odradek.broker.quota.controller_mutations import UNBOUNDED, ControllerMutationQuota

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext


class Unlimited(ClientQuotas):
    """Throttle no client."""

    measure_time = False

    def __init__(self) -> None:
        """Need neither configuration nor clock."""

    def throttle_ms(self, context: RequestContext, response: Any) -> int:
        return 0

    def fetch_bytes_max(self, context: RequestContext) -> int:
        return FETCH_BYTES_MAX

    def controller_mutations(self, context: RequestContext, *, strict: bool) -> ControllerMutationQuota:
        return UNBOUNDED

    def connection_rate(self, address: str) -> float | None:
        return None
