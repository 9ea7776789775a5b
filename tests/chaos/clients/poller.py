"""Asks for the end of each partition as both kinds of readers see it, by ListOffsets, again and again."""

from __future__ import annotations

import sys

from confluent_kafka import KafkaException

from tests.chaos.admin_requests import admin_client, ask_ends
from tests.chaos.clients.common import Client
from tests.sim.history import INFO, LIST, OK

PAUSE_SECONDS = 0.15


def main() -> int:
    client = Client()
    admin = admin_client(client.order.bootstrap, client.order.process)
    while not client.stopping.is_set():
        for committed in (False, True):
            numbers = {
                place: client.journal.invoke(LIST, topic=place[0], partition=place[1], isolation=int(committed))
                for place in client.partitions
            }
            for place, future in ask_ends(admin, client.partitions, committed=committed).items():
                try:
                    offset = future.result().offset
                except KafkaException as failed:
                    client.journal.complete(LIST, numbers[place], INFO, error=failed.args[0].code())
                else:
                    client.journal.complete(LIST, numbers[place], OK, at=offset)
        client.stopping.wait(PAUSE_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
