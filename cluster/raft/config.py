"""Time-outs of the raft core."""

from __future__ import annotations

from odradek.frozen import frozen_dataclass


@frozen_dataclass(frozen=True, slots=True)
class RaftConfig:
    """Time-outs in milliseconds. The first five are Kafka's `controller.quorum.*` properties, with their defaults."""

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_wait_ms_max: int = 500
    """Maximum time for which the leader parks a fetch without new data."""
    suspicion_delay_ms_max: int = 100
    """Maximum random delay before a follower starts an election against a suspected leader."""
    expedited_round_ms: int = 150
    """Election time-out of the first round while no leader is known to be alive. It doubles with each round."""

    @property
    def check_quorum_timeout_ms(self) -> int:
        """Time without fetches of a majority of the voters after which a leader resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_interval_ms(self) -> int:
        """Time without a fetch of a voter after which the leader sends BeginQuorumEpoch to it."""
        return self.fetch_timeout_ms // 2


DEFAULT_CONFIG = RaftConfig()
