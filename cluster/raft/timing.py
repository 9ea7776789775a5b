"""Random election delays of a raft replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.progress import successor_wait_ms

if TYPE_CHECKING:
    from odradek.cluster.raft.config import RaftConfig
    from odradek.cluster.randomness import Randomness

DOUBLINGS_MAX: Final = 10
"""Maximum doublings of the expedited time-out. With 150 ms this is above every configured election time-out."""


class ElectionTiming:
    """Election time-outs of one replica.

    While no leader is known to be alive, elections are `expedited`: the time-out starts short and doubles with each
    round.
    """

    def __init__(self, config: RaftConfig, rng: Randomness) -> None:
        self._config = config
        self._rng = rng
        self.expedited = False
        self._rounds = 0
        """Pre-vote rounds since the last known leader."""

    def expedite(self) -> None:
        """Shorten the election time-outs: no leader is known, or the known leader is suspected."""
        self.expedited = True

    def leader_is_alive(self) -> None:
        """Note that a leader was elected or has responded."""
        self.expedited = False
        self._rounds = 0

    def count_round(self) -> None:
        """Count a pre-vote round that has started."""
        self._rounds += 1

    def election_wait_ms(self) -> int:
        """Return a random election time-out, between the current base and twice the base."""
        base = self._config.election_timeout_ms
        if self.expedited:
            base = min(base, self._expedited_ms())
        return base + self._rng.randrange(base)

    def backoff_ms(self) -> int:
        """Return a random delay after a lost election. Its bound doubles with each round."""
        bound = min(self._config.election_backoff_max_ms, self._expedited_ms())
        return self._rng.randrange(bound) + 1

    def suspicion_delay_ms(self) -> int:
        """Return a random delay before an election against a suspected leader, so that voters do not split the vote."""
        return self._rng.randrange(self._config.suspicion_delay_ms_max + 1)

    def succession_wait_ms(self, node_id: int, preferred_successors: tuple[int, ...]) -> int:
        """Return the delay of `node_id` after the leader has resigned: by its position, or random if it has none."""
        if node_id not in preferred_successors:
            return self._rng.randrange(self._config.election_backoff_max_ms)
        position = preferred_successors.index(node_id)
        return successor_wait_ms(position, len(preferred_successors), self._config.election_backoff_max_ms)

    def _expedited_ms(self) -> int:
        return self._config.expedited_round_ms << min(self._rounds, DOUBLINGS_MAX)
