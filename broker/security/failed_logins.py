"""Limit of the rate of failed logins per client address, so that passwords cannot be tried quickly."""

from typing import Final

FAILURES_MAX: Final = 50
"""Maximum failed logins of one address that delay no login. Clients behind a proxy share an address."""
FAILURES_PER_SECOND: Final = 5.0
"""Failed logins of one address per second that are forgotten, and logins per second beyond FAILURES_MAX."""
WAIT_SECONDS_MAX: Final = 10.0
"""Maximum seconds for which a login waits. One that would wait longer is refused before its password is checked."""
ADDRESSES_MAX: Final = 10_000
"""Maximum addresses whose failed logins are remembered: about 1 MiB. Beyond it, the oldest entry is forgotten."""


class FailedLogins:
    """Count failed logins by the address of the client. Time is an argument."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}
        """Failures that are not forgotten, and the time of that number, by address."""

    def wait_s(self, address: str, now_s: float) -> float | None:
        """Return the seconds for which the next login of `address` waits. Return None if it must be refused.

        A login that waits counts as a failure until `succeeded`, so that parallel logins wait for each other.
        """
        level = self._level(address, now_s)
        if level < FAILURES_MAX:
            return 0.0
        wait_s = (level + 1 - FAILURES_MAX) / FAILURES_PER_SECOND
        if wait_s > WAIT_SECONDS_MAX:
            return None
        self._levels[address] = (level + 1, now_s)
        return wait_s

    def failed(self, address: str, now_s: float, *, waited: bool) -> None:
        """Count a failed login. One that has waited is counted already."""
        level = self._level(address, now_s) + (not waited)
        self._levels.pop(address, None)
        self._levels[address] = (level, now_s)
        if len(self._levels) > ADDRESSES_MAX:
            del self._levels[next(iter(self._levels))]

    def succeeded(self, address: str, now_s: float, *, waited: bool) -> None:
        """Take back the failure of a login that has waited. Earlier failures of the address still count."""
        if waited:
            self._levels[address] = (max(0.0, self._level(address, now_s) - 1), now_s)

    def _level(self, address: str, now_s: float) -> float:
        level, at_s = self._levels.get(address, (0.0, now_s))
        return max(0.0, level - (now_s - at_s) * FAILURES_PER_SECOND)
