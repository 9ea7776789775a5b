"""Forged, recorded, oversize and invalid datagrams over real UDP sockets against a running failure detector."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

from odradek.cluster.membership.messages import DATAGRAM_BYTES_MAX, Ack, Codec, GossipEntry, Message, Ping, Rejected
from odradek.cluster.membership.transitions import State
from odradek.runtime.tasks import Tasks
from tests.support.membership_process import HOST, member
from tests.support.ports import free_ports

CLUSTER = "a cluster"
CODEC = Codec(CLUSTER)
NUMBERS = itertools.count(2**40)
"""Numbers of the datagrams of node 2."""
UNTIL_S = 30


class Socket(asyncio.DatagramProtocol):
    """A UDP socket of the test. With `acknowledges`, it acknowledges pings of node 1 as node 2."""

    def __init__(self, target: tuple[str, int], *, acknowledges: bool) -> None:
        self.received: asyncio.Queue[Message] = asyncio.Queue()
        self.acknowledges = acknowledges
        self.target = target

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        datagram = CODEC.decode(data)
        assert not isinstance(datagram, Rejected)
        message = datagram.message
        if isinstance(message, Ping) and self.acknowledges:
            self.send(Ack(2, 1, 2, 0, message.sequence, 2, 2, 0))
        self.received.put_nowait(message)

    def encode(self, message: Message) -> bytes:
        return CODEC.encode(message, 0, next(NUMBERS))

    def send(self, message: Message) -> None:
        self.transport.sendto(self.encode(message), self.target)

    async def ping(self) -> None:
        """Wait until a ping arrives."""
        while not isinstance(await self.received.get(), Ping):
            pass

    async def acknowledgment(self, sequence: int) -> None:
        """Wait until the acknowledgment of the ping with this sequence number arrives."""
        while True:
            message = await self.received.get()
            if isinstance(message, Ack) and message.sequence == sequence:
                return


class Wire:
    """Node 1 with its failure detector, node 2 as a socket of the test, and a socket that belongs to no node."""

    def __init__(self, *, verifies_addresses: bool = False, acknowledges: bool = True) -> None:
        """`acknowledges`: node 2 acknowledges pings, and so is verified."""
        self.acknowledges = acknowledges
        self.sequence = 1_000
        self.errors: list[tuple[str, BaseException]] = []
        self.ports = free_ports(2)
        self.tasks = Tasks(lambda name, error: self.errors.append((name, error)))
        self.driver = member(1, self.ports, self.tasks, lambda _: None, verifies_addresses=verifies_addresses)

    async def __aenter__(self) -> Wire:
        await self.driver.start(HOST, self.ports[0])
        self.node, self.foreign = await self.open(self.ports[1]), await self.open(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.driver.close()
        self.node.transport.close()
        self.foreign.transport.close()
        await self.tasks.cancel_all()
        for _turn in range(3):  # transports close in a later iteration of the loop
            await asyncio.sleep(0)
        assert self.errors == []

    async def open(self, port: int) -> Socket:
        loop = asyncio.get_running_loop()
        target = (HOST, self.ports[0])
        _, opened = await loop.create_datagram_endpoint(
            lambda: Socket(target, acknowledges=self.acknowledges), local_addr=(HOST, port)
        )
        return opened

    async def processed(self) -> None:
        """Wait until node 1 has processed all datagrams that were sent before."""
        self.sequence += 1
        self.node.send(Ping(2, 1, 2, 0, self.sequence))
        await self.node.acknowledgment(self.sequence)

    async def verified(self) -> None:
        """Wait until node 1 has verified node 2: it received an acknowledgment of its ping."""
        await self.node.ping()
        await self.processed()

    def states(self) -> list[State]:
        return [row.state for row in self.driver.view()]


async def test_forged_and_invalid_datagrams_are_dropped_and_counted() -> None:
    async with asyncio.timeout(UNTIL_S), Wire() as wire:
        await wire.verified()
        admitted = wire.driver.traffic.received
        suspicion = GossipEntry(2, 2, 5, State.SUSPECT)
        genuine = wire.node.encode(Ping(2, 1, 2, 0, 1, (suspicion,)))
        forged = {
            Rejected.SIZE: [b"x", genuine[:20], genuine + bytes(DATAGRAM_BYTES_MAX), bytes(60_000)],
            Rejected.VERSION: [b"\x02" + genuine[1:]],
            Rejected.FOREIGN: [
                genuine[:-1] + bytes((genuine[-1] ^ 1,)),
                Codec(CLUSTER, b"another secret").encode(Ping(2, 1, 2, 0, 1, (suspicion,)), 0, 2**41),
                Codec("another cluster").encode(Ping(2, 1, 2, 0, 1, (suspicion,)), 0, 2**41),
            ],
            Rejected.MISDIRECTED: [wire.node.encode(Ping(2, 7, 2, 0, 1, (suspicion,)))],
        }
        for datagrams in forged.values():
            for data in datagrams:
                wire.node.transport.sendto(data, wire.node.target)
        await wire.processed()
        dropped = wire.driver.traffic.dropped
        assert {reason: dropped[reason] for reason in forged} == {reason: len(rows) for reason, rows in forged.items()}
        assert wire.states() == [State.ALIVE]
        assert wire.driver.traffic.received > admitted


async def test_datagram_that_is_sent_again_has_no_effect() -> None:
    async with asyncio.timeout(UNTIL_S), Wire() as wire:
        await wire.verified()
        recorded = wire.node.encode(Ping(2, 1, 2, 0, 1))
        for _ in range(5):
            wire.node.transport.sendto(recorded, wire.node.target)
        await wire.processed()
        assert wire.driver.traffic.dropped[Rejected.REPLAYED] == 4


async def test_datagram_from_another_address_is_dropped_without_a_secret() -> None:
    async with asyncio.timeout(UNTIL_S), Wire() as wire:
        await wire.verified()
        wire.foreign.transport.sendto(wire.node.encode(Ping(2, 1, 2, 0, 1)), wire.node.target)
        await wire.processed()
        assert wire.driver.traffic.dropped[Rejected.ADDRESS] == 1
        assert wire.foreign.received.empty()


async def test_second_address_of_a_node_is_verified_with_a_secret() -> None:
    async with asyncio.timeout(UNTIL_S), Wire(verifies_addresses=True) as wire:
        await wire.verified()
        wire.foreign.send(Ping(2, 1, 2, 0, 1))
        await wire.foreign.ping()  # the challenge; the socket acknowledges it
        await wire.processed()
        assert wire.driver.traffic.dropped[Rejected.ADDRESS] == 1
        wire.foreign.send(Ping(2, 1, 2, 0, 2))
        await wire.node.acknowledgment(2)
        assert wire.driver.traffic.dropped[Rejected.ADDRESS] == 1


async def test_recording_of_an_ended_process_cannot_keep_a_node_alive() -> None:
    async with asyncio.timeout(UNTIL_S), Wire(acknowledges=False) as wire:
        recorded = [wire.node.encode(Ping(2, 1, 2, 9, 1)), wire.node.encode(Ack(2, 1, 2, 9, 1, 2, 2, 9))]
        while wire.states() != [State.FAILED]:  # the process has ended, and an attacker sends what it recorded
            for data in recorded:
                wire.node.transport.sendto(data, wire.node.target)
            await wire.node.ping()
        for data in recorded:
            wire.node.transport.sendto(data, wire.node.target)
        await wire.node.acknowledgment(1)
        assert wire.states() == [State.FAILED]
        assert wire.driver.traffic.dropped[Rejected.UNVERIFIED] >= 1
