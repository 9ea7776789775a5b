"""How much was used of late: what quotas are measured with, by the rules of Kafka's metrics (Rate, TokenBucket). No IO, no clock."""

from collections import deque
from dataclasses import dataclass
from typing import Final

SECOND_MS: Final = 1_000


@dataclass(slots=True)
class _Sample:
    began_ms: int
    total: float = 0.0


class Rate:
    """Use per second over the last `samples` windows of `window_ms` each.

    Time that has not passed yet counts as if nothing had been used in it: a client that begins may use at once what it may use in
    all windows together.
    """

    __slots__ = ("_samples", "_samples_max", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples_max = samples
        self._window_ms = window_ms
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1].began_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
        samples[-1].total += amount

    def per_second(self, now_ms: int) -> float:
        self._forget(now_ms)
        return sum(sample.total for sample in self._samples) * SECOND_MS / self.span_ms(now_ms)

    def span_ms(self, now_ms: int) -> int:
        """The time over which is measured: no less than all windows but the one that is going on."""
        elapsed_ms = now_ms - self._samples[0].began_ms if self._samples else 0
        missing = self._samples_max - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, self._window_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing must be used for the rate to be `limit` again; 0 where it is not above."""
        rate = self.per_second(now_ms)
        return round((rate - limit) / limit * self.span_ms(now_ms)) if rate > limit else 0

    def _forget(self, now_ms: int) -> None:
        samples, oldest_ms = self._samples, now_ms - self._samples_max * self._window_ms
        while samples and samples[0].began_ms <= oldest_ms:
            samples.popleft()


class TokenBucket:
    """`limit` tokens a second come in, as many as fit into all windows together; a debt is paid off before more are given."""

    __slots__ = ("_filled_ms", "_span_s", "_tokens")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._span_s = samples * window_ms / SECOND_MS
        self._tokens: float | None = None
        self._filled_ms = 0

    def left(self, limit: float, now_ms: int) -> float:
        """Tokens that are there; below 0 is a debt."""
        full = limit * self._span_s
        if self._tokens is None:
            self._tokens = full
        else:
            self._tokens = min(full, self._tokens + limit * (now_ms - self._filled_ms) / SECOND_MS)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, amount: float, limit: float, now_ms: int) -> None:
        self._tokens = self.left(limit, now_ms) - amount

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long it takes to pay off the debt."""
        return max(0, round(-self.left(limit, now_ms) / limit * SECOND_MS))
