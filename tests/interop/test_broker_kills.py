"""Repeated SIGKILL of a broker under transactional load, at random times."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import LocalCluster
from tests.support.ledger import LONGEST_WAIT_S, PARTITIONS, TOPIC, Load, check, final_read

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PRODUCERS = 3
KILLS = 4
TRANSACTIONS_BETWEEN_MAX = 50
SEED = 20_261_121


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(LONGEST_WAIT_S)
        yield running


def test_acknowledged_records_are_kept_exactly_once_and_transactions_are_atomic(cluster: LocalCluster) -> None:
    rng = random.Random(SEED)
    loads = [Load(cluster.bootstrap, f"p{number}", SEED + number) for number in range(PRODUCERS)]
    for _ in range(KILLS):
        for load in loads:  # under load, at a random time
            load.go_on(rng.randint(1, TRANSACTIONS_BETWEEN_MAX))
        cluster.kill(1)
        cluster.start(1)
    for load in loads:
        load.go_on(TRANSACTIONS_BETWEEN_MAX)
    histories = [load.finish() for load in loads]
    check(histories, final_read(cluster.bootstrap, [history.tag for history in histories]), at_least=KILLS + 1)
