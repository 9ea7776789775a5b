"""Arguments of `KafkaCluster` that name no broker or no time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek import BrokerNotRunning
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.testing.kafka_cluster import KafkaCluster
from odradek.testing.plan import FaultPlan, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    """Three brokers that were not started."""
    found = KafkaCluster(3)
    yield found
    found.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.start(4),
        lambda cluster: cluster.kill(4),
        lambda cluster: cluster.restart(4),
        lambda cluster: cluster.pause(4),
        lambda cluster: cluster.resume(4),
        lambda cluster: cluster.full_disk(4),
        lambda cluster: cluster.free_disk(4),
        lambda cluster: cluster.move_leader("t", to=4),
        lambda cluster: cluster.cut(1, 4),
        lambda cluster: cluster.log(4),
        lambda cluster: cluster.endpoint(4),
    ],
)
def test_broker_that_does_not_exist_is_refused_with_those_that_do(
    cluster: KafkaCluster, call: Callable[[KafkaCluster], Any]
) -> None:
    with pytest.raises(ValueError, match="broker 4 does not exist; the brokers are 1, 2, 3"):
        call(cluster)


@pytest.mark.parametrize("ms", [-1, float("nan"), float("inf")])
def test_delay_of_a_link_that_is_no_time_is_refused(cluster: KafkaCluster, ms: float) -> None:
    with pytest.raises(ValueError, match=f"ms={ms!r}: use a number of milliseconds"):
        cluster.slow(1, 2, ms)


@pytest.mark.parametrize("brokers", [0, 10])
def test_number_of_brokers_out_of_range_is_refused(brokers: int) -> None:
    with pytest.raises(ValueError, match=f"brokers={brokers}: the number must be between 1 and 9"):
        KafkaCluster(brokers)


def test_fault_of_a_plan_ends_without_the_rules_of_the_test(cluster: KafkaCluster) -> None:
    cluster.faults.on("EndTxn").observe()
    for effect in ("drop_response", "delay"):
        cluster.inject("Produce", effect)
    assert cluster.faults.watched() == [(EndTxnRequest.API_KEY, False), (ProduceRequest.API_KEY, False)]
    cluster.remove_injected()
    assert cluster.faults.watched() == [(EndTxnRequest.API_KEY, False)]


@pytest.mark.parametrize("step", [Step(0, "heal"), Step(0, "resume", (1,))], ids=["block", "step"])
def test_faults_end_also_if_the_block_or_a_step_raises(
    cluster: KafkaCluster, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(cluster, "end_faults", lambda: ended.append(True))
    monkeypatch.setattr(cluster, "heal", lambda: None)
    plan = FaultPlan((step,))
    with pytest.raises(BrokerNotRunning if step.arguments else ZeroDivisionError), cluster.run_faults(plan) as runs:
        while runs():
            pass
        assert step.arguments or 1 / 0
    assert ended == [True]
