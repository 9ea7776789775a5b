"""A client process that repeatedly lists the end offset of each partition, at both isolation levels."""

from __future__ import annotations

import sys

from confluent_kafka import KafkaException

from tests.chaos.admin_requests import admin_client, list_end_offsets
from tests.chaos.clients.common import Client
from tests.sim.history import INFO, LIST, OK

PAUSE_SECONDS = 0.15


def main() -> int:
    client = Client()
    admin = admin_client(client.spec.access, client.spec.process)
    while not client.stopping.is_set():
        for committed in (False, True):
            numbers = {
                partition: client.journal.invoke(
                    LIST, topic=partition[0], partition=partition[1], isolation=int(committed)
                )
                for partition in client.partitions
            }
            for partition, future in list_end_offsets(admin, client.partitions, committed=committed).items():
                try:
                    offset = future.result().offset
                except KafkaException as failure:
                    client.journal.complete(LIST, numbers[partition], INFO, error=failure.args[0].code())
                else:
                    client.journal.complete(LIST, numbers[partition], OK, offset=offset)
        client.stopping.wait(PAUSE_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
