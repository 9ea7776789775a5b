"""Links between simulated hosts: cuts, one way or both, slow links, datagrams that get lost, hosts without power."""

import asyncio
from collections.abc import Iterator
from random import Random

import asyncio_dgram
import pytest

from tests.sim.environment.links import CLIENTS, host_of
from tests.sim.environment.loop import SimLoop
from tests.sim.environment.network import FrameFault, Network

A, B = "a.sim", "b.sim"


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    rng = Random(1)
    made = SimLoop(rng, network=Network(rng, framed=False))
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


async def serve(loop: SimLoop) -> None:
    await loop.spawn(f"{B}#1", loop.create_server(Echo, "0.0.0.0", 9), "serve")


async def ask(loop: SimLoop, text: bytes) -> tuple[bytes, float]:
    """From host A: the answer, and how long it took."""

    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection(B, 9)
        writer.write(text)
        answer = await reader.readexactly(len(text))
        writer.close()
        return answer

    began = loop.time()
    return await loop.spawn(f"{A}#1", talk(), "ask"), loop.time() - began


def test_a_life_of_a_node_is_on_its_host_and_everything_else_is_a_client() -> None:
    assert (host_of("a.sim#3"), host_of("c:reader"), host_of("world")) == (A, CLIENTS, CLIENTS)


@pytest.mark.parametrize("link", [(A, B), (B, A)])
def test_a_cut_of_either_direction_holds_up_a_connection_until_it_is_over(loop: SimLoop, link: tuple[str, str]) -> None:
    async def main() -> tuple[bytes, float]:
        await serve(loop)
        loop.network.links.partition(*link, 5.0)
        return await ask(loop, b"hello")

    answer, seconds = loop.run_until_complete(main())
    assert answer == b"HELLO"
    assert 5.0 <= seconds < 5.5


def test_what_is_sent_over_a_cut_link_arrives_in_order_when_it_heals(loop: SimLoop) -> None:
    async def main() -> tuple[bytes, float]:
        await serve(loop)

        async def talk() -> bytes:
            reader, writer = await asyncio.open_connection(B, 9)
            loop.network.links.partition(A, B, 60.0)
            for number in range(10):
                writer.write(b"%d" % number)
                await asyncio.sleep(0.1)
            loop.network.links.heal()
            answer = await reader.readexactly(10)
            writer.close()
            return answer

        return await loop.spawn(f"{A}#1", talk(), "talk"), loop.time()

    answer, now = loop.run_until_complete(main())
    assert answer == b"0123456789"
    assert now < 5


def test_a_slow_link_delays_and_a_host_that_is_cut_off_for_ever_stays_so(loop: SimLoop) -> None:
    async def main() -> tuple[float, bool]:
        await serve(loop)
        links = loop.network.links
        links.slow(A, B, 60.0, 0.5)
        _, seconds = await ask(loop, b"x")
        links.partition(A, B, float("inf"))
        links.heal(except_host=B)
        return seconds, links.is_open(A, B)

    seconds, is_open = loop.run_until_complete(main())
    assert seconds > 1.0  # to connect, and to send
    assert not is_open


def test_who_loses_power_says_nothing_and_resets_what_it_no_longer_knows(loop: SimLoop) -> None:
    async def main() -> list[str]:
        await serve(loop)
        seen: list[str] = []

        async def talk() -> None:
            reader, writer = await asyncio.open_connection(B, 9)
            loop.network.links.power_off(B)
            loop.network.detach_node(f"{B}#1", silently=True)
            writer.write(b"x")
            try:
                await asyncio.wait_for(reader.readexactly(1), 3.0)
            except TimeoutError:
                seen.append("silence")
            loop.network.links.power_on(B)
            try:
                await reader.readexactly(1)
            except (ConnectionResetError, asyncio.IncompleteReadError):
                seen.append("reset")
            writer.close()

        await loop.spawn(f"{A}#1", talk(), "talk")
        return seen

    assert loop.run_until_complete(main()) == ["silence", "reset"]


def test_datagrams_pass_by_the_package_that_production_uses_unless_they_are_blocked(loop: SimLoop) -> None:
    async def main() -> list[bytes]:
        heard: list[bytes] = []

        async def listen() -> None:
            stream = await asyncio_dgram.bind(("0.0.0.0", 7))
            while True:
                data, source = await stream.recv()
                assert source == (A, 8)
                heard.append(data)

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
        return heard

    heard = loop.run_until_complete(main())
    numbers = {int(data) for data in heard}
    assert max(numbers) == 99
    assert 90 < len(numbers) < 100  # some are lost
    assert len(heard) >= len(numbers)


def test_a_frame_fault_may_name_the_hosts_of_its_link() -> None:
    class Asked:
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
        assert fault.fits(Asked(), 27) is fits  # type: ignore[arg-type]
        assert not fault.fits(Asked(), 26)  # type: ignore[arg-type]
