"""Two workers have the same transactional id: each one fences the other, and the first cannot commit any more.

Workers that run at the same time need different transactional ids.
"""

import pytest
from confluent_kafka import KafkaException, Producer

from odradek.testing import Kafka

BUG = pytest.mark.xfail(raises=KafkaException, strict=True)
WORKERS = 2


@pytest.mark.parametrize(
    "shared",
    [pytest.param(True, marks=BUG), False],
    ids=["buggy", "correct"],
)
def test_all_workers_commit(kafka: Kafka, shared: bool) -> None:
    topic, name = kafka.topic(), kafka.transactional_id()
    config = kafka.client_config("confluent-kafka")
    ids = [name if shared else f"{name}-{number}" for number in range(WORKERS)]
    workers = [Producer(config | {"transactional.id": transactional_id}) for transactional_id in ids]
    for worker in workers:
        worker.init_transactions()
    for number, worker in enumerate(workers):
        worker.begin_transaction()
        worker.produce(topic, b"%d" % number)
        worker.commit_transaction(10)
    assert sorted(value or b"" for value in kafka.values(topic)) == [b"0", b"1"]
