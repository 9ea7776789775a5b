"""Measurements for quotas, with the rules of Kafka's `Rate` and `TokenBucket` metrics. This module is pure."""

from collections import deque
from dataclasses import dataclass
from typing import Final

SECOND_MS: Final = 1_000
THROTTLE_MS_MAX: Final = 2**31 - 1
"""Maximum throttle time in milliseconds: `throttle_time_ms` of a response is an int32."""
LIMIT_MAX: Final = 2.0**62
"""Maximum units per second of a limit. A client can set any positive double as a quota, also infinity."""


@dataclass(slots=True)
class _Sample:
    """Sum of the recorded amounts of one window."""

    began_ms: int
    total: float = 0.0


class Rate:
    """Use per second over the last `samples` windows of `window_ms` milliseconds each.

    As in Kafka, windows before the first record count as windows without use. A new client may therefore use the quota
    of all windows immediately.
    """

    __slots__ = ("_samples", "_samples_max", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples_max = samples
        self._window_ms = window_ms
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        """Add `amount` to the current window."""
        samples = self._samples
        if not samples or now_ms - samples[-1].began_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
        samples[-1].total += amount

    def per_second(self, now_ms: int) -> float:
        """Return the rate at `now_ms`."""
        self._remove_old(now_ms)
        return sum(sample.total for sample in self._samples) * SECOND_MS / self.span_ms(now_ms)

    def span_ms(self, now_ms: int) -> int:
        """Return the milliseconds that the rate is computed over: at least all windows except the current one."""
        elapsed_ms = now_ms - self._samples[0].began_ms if self._samples else 0
        missing = self._samples_max - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, self._window_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the milliseconds without use after which the rate is `limit` again; 0 if it is not above `limit`."""
        rate = self.per_second(now_ms)
        return round(min((rate - limit) / limit * self.span_ms(now_ms), THROTTLE_MS_MAX)) if rate > limit else 0

    def _remove_old(self, now_ms: int) -> None:
        samples, oldest_ms = self._samples, now_ms - self._samples_max * self._window_ms
        while samples and samples[0].began_ms <= oldest_ms:
            samples.popleft()


class TokenBucket:
    """Bucket that gains `limit` tokens per second, up to those of `samples` windows of `window_ms` milliseconds each.

    The number of tokens can be negative (a debt).
    """

    __slots__ = ("_filled_ms", "_span_s", "_tokens")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._span_s = samples * window_ms / SECOND_MS
        self._tokens: float | None = None
        self._filled_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Add the tokens since the last call. Return the tokens in the bucket; a negative number is a debt."""
        limit = min(limit, LIMIT_MAX)
        full = limit * self._span_s
        if self._tokens is None:
            self._tokens = full
        else:
            self._tokens = min(full, self._tokens + limit * (now_ms - self._filled_ms) / SECOND_MS)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, amount: float, limit: float, now_ms: int) -> None:
        """Remove `amount` tokens, even if fewer are in the bucket."""
        self._tokens = self.tokens(limit, now_ms) - amount

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the milliseconds after which the bucket has no debt."""
        return max(0, round(min(-self.tokens(limit, now_ms) / limit * SECOND_MS, THROTTLE_MS_MAX)))
