"""Links between simulated hosts: partitions, slow links, lost datagrams, hosts without power."""

import asyncio
from collections.abc import Iterator
from random import Random

import asyncio_dgram
import pytest

from odradek.simulation.environment.links import CLIENTS, host_of
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.network import FrameFault, Network

A, B = "a.sim", "b.sim"


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    rng = Random(1)
    sim_loop = SimLoop(rng, network=Network(rng, framed=False))
    asyncio.set_event_loop(sim_loop)
    yield sim_loop
    asyncio.set_event_loop(None)
    sim_loop.close()


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


async def serve(loop: SimLoop) -> None:
    await loop.spawn(f"{B}#1", loop.create_server(Echo, "0.0.0.0", 9), "serve")


async def request(loop: SimLoop, text: bytes) -> tuple[bytes, float]:
    """Send `text` from host A. Return the response and the elapsed seconds."""

    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection(B, 9)
        writer.write(text)
        response = await reader.readexactly(len(text))
        writer.close()
        return response

    started = loop.time()
    return await loop.spawn(f"{A}#1", talk(), "ask"), loop.time() - started


def test_host_of_an_incarnation_is_its_host_and_of_others_the_client_host() -> None:
    assert (host_of("a.sim#3"), host_of("c:reader"), host_of("world")) == (A, CLIENTS, CLIENTS)


@pytest.mark.parametrize("link", [(A, B), (B, A)])
def test_partition_of_either_direction_delays_a_connection(loop: SimLoop, link: tuple[str, str]) -> None:
    async def main() -> tuple[bytes, float]:
        await serve(loop)
        loop.network.links.partition(*link, 5.0)
        return await request(loop, b"hello")

    response, seconds = loop.run_until_complete(main())
    assert response == b"HELLO"
    assert 5.0 <= seconds < 5.5


def test_data_sent_over_partitioned_link_arrives_in_order_after_healing(loop: SimLoop) -> None:
    async def main() -> tuple[bytes, float]:
        await serve(loop)

        async def talk() -> bytes:
            reader, writer = await asyncio.open_connection(B, 9)
            loop.network.links.partition(A, B, 60.0)
            for number in range(10):
                writer.write(b"%d" % number)
                await asyncio.sleep(0.1)
            loop.network.links.heal()
            response = await reader.readexactly(10)
            writer.close()
            return response

        return await loop.spawn(f"{A}#1", talk(), "talk"), loop.time()

    response, now = loop.run_until_complete(main())
    assert response == b"0123456789"
    assert now < 5


def test_joined_hosts_receive_what_the_partition_delayed_and_other_partitions_remain(loop: SimLoop) -> None:
    async def main() -> tuple[bytes, float, bool]:
        await serve(loop)
        links = loop.network.links
        for link in ((A, B), (B, A), (B, CLIENTS)):
            links.partition(*link, 60.0)
        loop.call_later(2.0, links.join, B, A)
        return *await request(loop, b"hello"), links.is_open(B, CLIENTS)

    response, seconds, clients_joined = loop.run_until_complete(main())
    assert response == b"HELLO"
    assert 2.0 <= seconds < 2.5
    assert not clients_joined


def test_slow_link_delays_and_permanent_partition_survives_healing(loop: SimLoop) -> None:
    async def main() -> tuple[float, bool]:
        await serve(loop)
        links = loop.network.links
        links.slow(A, B, 60.0, 0.5)
        _, seconds = await request(loop, b"x")
        links.partition(A, B, float("inf"))
        links.heal(except_host=B)
        return seconds, links.is_open(A, B)

    seconds, is_open = loop.run_until_complete(main())
    assert seconds > 1.0  # to connect, and to send
    assert not is_open


@pytest.mark.parametrize("removed", [False, True], ids=["ended", "removed"])
def test_host_without_power_is_silent_and_resets_connections_afterwards(loop: SimLoop, removed: bool) -> None:
    async def main() -> list[str]:
        await serve(loop)
        events: list[str] = []

        async def talk() -> None:
            reader, writer = await asyncio.open_connection(B, 9)
            loop.network.links.power_off(B)
            loop.network.detach_node(f"{B}#1", silently=True)
            if removed:
                loop.remove_node(f"{B}#1")
            writer.write(b"x")
            try:
                await asyncio.wait_for(reader.readexactly(1), 3.0)
            except TimeoutError:
                events.append("silence")
            loop.network.links.power_on(B)
            try:
                await reader.readexactly(1)
            except (ConnectionResetError, asyncio.IncompleteReadError):
                events.append("reset")
            writer.close()

        await loop.spawn(f"{A}#1", talk(), "talk")
        return events

    assert loop.run_until_complete(main()) == ["silence", "reset"]


def test_datagrams_pass_through_asyncio_dgram_unless_blocked(loop: SimLoop) -> None:
    async def main() -> list[bytes]:
        received: list[bytes] = []

        async def listen() -> None:
            stream = await asyncio_dgram.bind(("0.0.0.0", 7))
            while True:
                data, source = await stream.recv()
                assert source == (A, 8)
                received.append(data)

        async def talk() -> None:
            stream = await asyncio_dgram.bind(("0.0.0.0", 8))
            for number in range(200):
                if number == 100:
                    loop.network.links.block_datagrams(A, B, 1000.0)
                await stream.send(b"%d" % number, (B, 7))
                await asyncio.sleep(0.01)
            stream.close()

        listener = loop.spawn(f"{B}#1", listen(), "listen")
        await asyncio.sleep(0.1)
        await loop.spawn(f"{A}#1", talk(), "talk")
        listener.cancel()
        return received

    received = loop.run_until_complete(main())
    numbers = {int(data) for data in received}
    assert max(numbers) == 99
    assert 90 < len(numbers) < 100  # some are lost
    assert len(received) >= len(numbers)


def test_frame_fault_matches_the_hosts_of_its_link() -> None:
    class RequestPipe:
        is_request = True
        link = (A, B)

    for source, destination, fits in (
        ("", "", True),
        (A, B, True),
        (B, A, False),
        ("brokers", "", True),
        (CLIENTS, "", False),
    ):
        fault = FrameFault("hold_request", (27,), source=source, destination=destination)
        assert fault.fits(RequestPipe(), 27) is fits  # type: ignore[arg-type]
        assert not fault.fits(RequestPipe(), 26)  # type: ignore[arg-type]
